//! A receiver of OTLP that answers as a test tells it: for what real ones cannot be made to do.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint, number_data_point};
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

/// How a receiver answers a request.
#[derive(Clone, Debug)]
pub enum Answer {
    Ok,
    /// A status of HTTP, headers, and a body of text.
    Http(u16, Vec<(&'static str, &'static str)>, &'static str),
    /// A status of gRPC, and a message.
    Grpc(u32, &'static str),
    /// So many spans are rejected, and why.
    Partial(i64, &'static str),
    /// Never.
    Hang,
    /// By closing the connection.
    Close,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Received {
    /// With the query.
    pub path: String,
    pub headers: HeaderMap,
    /// The message, unpacked.
    pub message: Bytes,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The names of the spans in it, in order.
    pub fn spans(&self) -> Vec<String> {
        let request = match self.header("content-type") {
            Some("application/json") => return json_spans(&self.message),
            _ => ExportTraceServiceRequest::decode(self.message.clone()).unwrap(),
        };
        let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).map(|span| span.name).collect()
    }

    fn metrics(&self) -> impl Iterator<Item = Metric> + use<> {
        let request = ExportMetricsServiceRequest::decode(self.message.clone()).unwrap();
        let scopes = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
        scopes.flat_map(|scope| scope.metrics)
    }

    /// The values of a sum, by the kind of error, if they have one.
    pub fn sums(&self, name: &str) -> BTreeMap<Option<String>, i64> {
        let data = self.metrics().find(|metric| metric.name == name).and_then(|metric| metric.data);
        let Some(Data::Sum(sum)) = data else { return BTreeMap::new() };
        let point = |point: NumberDataPoint| {
            let Some(number_data_point::Value::AsInt(value)) = point.value else { panic!("{point:?}") };
            let error = point.attributes.into_iter().find(|attribute| attribute.key == "error.type");
            let error = error.and_then(|attribute| match attribute.value?.value? {
                any_value::Value::StringValue(text) => Some(text),
                _ => None,
            });
            (error, value)
        };
        sum.data_points.into_iter().map(point).collect()
    }

    /// How many data points are in it, but for what the delivery tells of itself.
    pub fn points(&self) -> usize {
        let metrics = self.metrics().filter(|metric| !metric.name.starts_with("otel.sdk."));
        metrics
            .filter_map(|metric| metric.data)
            .map(|data| match data {
                Data::Gauge(gauge) => gauge.data_points.len(),
                Data::Sum(sum) => sum.data_points.len(),
                Data::Histogram(histogram) => histogram.data_points.len(),
                other => panic!("not expected: {other:?}"),
            })
            .sum()
    }

    /// How many log records are in it.
    pub fn log_records(&self) -> usize {
        let request = ExportLogsServiceRequest::decode(self.message.clone()).unwrap();
        let scopes = request.resource_logs.into_iter().flat_map(|resource| resource.scope_logs);
        scopes.map(|scope| scope.log_records.len()).sum()
    }
}

fn json_spans(bytes: &[u8]) -> Vec<String> {
    let request: serde_json::Value = serde_json::from_slice(bytes).unwrap();
    let scopes = request["resourceSpans"][0]["scopeSpans"].as_array().unwrap();
    let spans = scopes.iter().flat_map(|scope| scope["spans"].as_array().unwrap());
    spans.map(|span| span["name"].as_str().unwrap().to_owned()).collect()
}

/// It listens on a port of the loopback that the kernel drew, until it is dropped.
pub struct Receiver {
    address: SocketAddr,
    tls: bool,
    shared: Arc<Shared>,
    _runtime: Runtime,
}

#[derive(Default)]
struct Shared {
    answers: Mutex<VecDeque<Answer>>,
    received: Mutex<Vec<Received>>,
    connections: AtomicUsize,
}

impl Receiver {
    /// Gives these answers in turn, and the last one from then on.
    pub fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::with(answers, None)
    }

    /// The same over TLS.
    pub fn with(answers: impl IntoIterator<Item = Answer>, tls: Option<TlsAcceptor>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let shared =
            Arc::new(Shared { answers: Mutex::new(answers.into_iter().collect()), ..Shared::default() });
        let is_tls = tls.is_some();
        runtime.spawn(accept(listener, Arc::clone(&shared), tls));
        Self { address, tls: is_tls, shared, _runtime: runtime }
    }

    /// A URL without a path.
    pub fn url(&self) -> String {
        match self.tls {
            true => format!("https://localhost:{}", self.address.port()),
            false => format!("http://{}", self.address),
        }
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// What has arrived, whatever the answer.
    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }

    /// How many connections there were.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// The names of all spans that have arrived, in order.
    pub fn spans(&self) -> Vec<String> {
        let traces =
            self.received().into_iter().filter(|request| request.path.to_lowercase().contains("trace"));
        traces.flat_map(|request| request.spans()).collect()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, tls: Option<TlsAcceptor>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        shared.connections.fetch_add(1, Ordering::SeqCst);
        let shared = Arc::clone(&shared);
        let service = service_fn(move |request| respond(request, Arc::clone(&shared)));
        let tls = tls.clone();
        tokio::spawn(async move {
            let builder = auto::Builder::new(TokioExecutor::new());
            // A connection that ends is no matter of the test's.
            let _ended = match tls {
                None => builder.serve_connection(TokioIo::new(stream), service).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => builder.serve_connection(TokioIo::new(stream), service).await,
                    Err(_) => return,
                },
            };
        });
    }
}

type Body = BoxBody<Bytes, Infallible>;

async fn respond(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, &'static str> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.map_err(|_| "the request broke off")?.to_bytes();
    let is_grpc =
        head.headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let path = head.uri.path_and_query().unwrap().to_string();
    let message = unpacked(&head.headers, bytes, is_grpc);
    shared.received.lock().unwrap().push(Received { path, headers: head.headers, message });
    let answer = {
        let mut answers = shared.answers.lock().unwrap();
        match answers.len() {
            0 => Answer::Ok,
            1 => answers[0].clone(),
            _ => answers.pop_front().unwrap(),
        }
    };
    match answer {
        Answer::Hang => std::future::pending().await,
        Answer::Close => Err("on purpose"),
        Answer::Ok => Ok(accepted(is_grpc, Bytes::new())),
        Answer::Partial(rejected_spans, why) => {
            let success = ExportTracePartialSuccess { rejected_spans, error_message: why.to_owned() };
            let answer = ExportTraceServiceResponse { partial_success: Some(success) };
            Ok(accepted(is_grpc, answer.encode_to_vec().into()))
        }
        Answer::Http(status, headers, text) => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            Ok(response.body(Full::new(Bytes::from_static(text.as_bytes())).boxed()).unwrap())
        }
        Answer::Grpc(code, text) => Ok(Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", code)
            .header("grpc-message", text)
            .body(Empty::new().boxed())
            .unwrap()),
    }
}

fn accepted(is_grpc: bool, message: Bytes) -> Response<Body> {
    if !is_grpc {
        let response = Response::builder().header("content-type", "application/x-protobuf");
        return response.body(Full::new(message).boxed()).unwrap();
    }
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(message.len().try_into().unwrap());
    frame.put(message);
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]);
    let body = Full::new(frame.freeze()).with_trailers(async { Some(Ok(trailers)) });
    Response::builder().header("content-type", "application/grpc").body(body.boxed()).unwrap()
}

/// The message without gRPC's frame and without compression.
fn unpacked(headers: &HeaderMap, bytes: Bytes, is_grpc: bool) -> Bytes {
    let (is_gzip, bytes) = match is_grpc {
        true => (bytes[0] == 1, bytes.slice(5..)),
        false => (headers.get("content-encoding").is_some_and(|encoding| encoding == "gzip"), bytes),
    };
    if !is_gzip {
        return bytes;
    }
    let mut message = Vec::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut message).unwrap();
    message.into()
}
