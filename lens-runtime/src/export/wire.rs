//! How does a body get to a receiver, and what did it answer?
//!
//! One HTTP client of our own serves both transports: requests over HTTP/1.1 or HTTP/2 as the server
//! likes, and gRPC by tonic on top of HTTP/2. Headers are set last, on the finished request, so that
//! they are exactly those of the configuration. Nothing here retries, and nothing here needs a
//! runtime before the first request.

use std::error::Error as StdError;
use std::io::Write as _;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use rustls::ClientConfig;
use tonic::client::Grpc;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use tower_service::Service;

use super::{Body, Failure, Retry, Written, tls};
use crate::config::{OtlpProtocol, Target};
use crate::error::Error;
use crate::signal::Signal;

/// An answer is a few numbers and a sentence; what is longer is not read.
const ANSWER_LIMIT: usize = 64 << 10;

/// Characters of a receiver's text that are repeated.
const TEXT_LIMIT: usize = 300;

/// Keeps routers from forgetting a connection on which nothing is sent for a while.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Requests, as they go into the connection.
type HttpClient = legacy::Client<HttpsConnector<HttpConnector>, tonic::body::Body>;

/// The connection to the receiver of one signal. It is made by the first request.
pub(crate) struct Client {
    target: Target,
    tls: ClientConfig,
    http: HttpClient,
}

/// What a receiver answered that took a request, or part of it.
#[derive(Default)]
struct Answer {
    rejected: u64,
    text: String,
}

impl Client {
    /// # Errors
    /// If a certificate cannot be read.
    pub(crate) fn new(target: Target) -> Result<Self, Error> {
        let tls = tls::config(&target)?;
        Ok(Self { http: http_client(&target, tls.clone()), tls, target })
    }

    pub(crate) fn protocol(&self) -> OtlpProtocol {
        self.target.protocol.value
    }

    /// Sends a body, once.
    pub(crate) async fn send(&mut self, body: &Body) -> Result<Written, Failure> {
        let limit = self.target.timeout.value;
        let attempt = async {
            match self.protocol() {
                OtlpProtocol::Grpc => self.call(body.bytes.clone()).await,
                OtlpProtocol::HttpProtobuf | OtlpProtocol::HttpJson => self.post(&body.bytes).await,
            }
        };
        let (text, retry) = match tokio::time::timeout(limit, attempt).await {
            Ok(Ok(Answer { rejected, text })) => {
                let complaint = match rejected {
                    0 => (!text.is_empty()).then(|| self.told(&text)),
                    _ => Some(self.told(&format!("{rejected} of {} rejected: {text}", body.records))),
                };
                return Ok(Written { rejected, complaint });
            }
            Ok(Err((text, retry))) => (text, retry),
            Err(_) => {
                // The connection may be one that a router forgot; another attempt gets another one.
                self.http = http_client(&self.target, self.tls.clone());
                (format!("no answer within {} ms", limit.as_millis()), Retry::Unanswered)
            }
        };
        Err(Failure { cause: self.told(&text) + self.hint(), retry })
    }

    /// The likeliest mistake.
    fn hint(&self) -> &'static str {
        match (self.protocol(), self.target.endpoint.value.port_u16()) {
            (OtlpProtocol::Grpc, Some(4318)) => {
                " (the protocol is grpc, and by convention 4318 is HTTP's port)"
            }
            (OtlpProtocol::HttpProtobuf | OtlpProtocol::HttpJson, Some(4317)) => {
                " (the protocol is HTTP, and by convention 4317 is gRPC's port)"
            }
            _ => "",
        }
    }

    /// With the place, in one line, without anything secret that a receiver may have repeated.
    fn told(&self, text: &str) -> String {
        let text = self.target.redacted(text);
        let end = text.char_indices().nth(TEXT_LIMIT).map_or(text.len(), |(end, _)| end);
        format!("{}: {}", self.target.shown(), text[..end].trim())
    }

    async fn post(&self, bytes: &Bytes) -> Result<Answer, (String, Retry)> {
        let content_type = match self.protocol() {
            OtlpProtocol::HttpJson => "application/json",
            OtlpProtocol::Grpc | OtlpProtocol::HttpProtobuf => "application/x-protobuf",
        };
        let mut request = Request::new(tonic::body::Body::new(Full::new(match self.target.gzip.value {
            true => gzipped(bytes),
            false => bytes.clone(),
        })));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.target.endpoint.value.clone();
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        if self.target.gzip.value {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        headers.insert(header::USER_AGENT, USER_AGENT);
        stamp(headers, &self.target);
        let response = self.http.request(request).await.map_err(|error| of_transport(&error))?;
        let (head, body) = response.into_parts();
        let answer =
            Limited::new(body, ANSWER_LIMIT).collect().await.map(http_body_util::Collected::to_bytes);
        match (head.status.is_success(), answer) {
            (true, answer) => Ok(self.accepted(&head.headers, &answer.unwrap_or_default())),
            (false, answer) => {
                let text = failure_text(&head.headers, &answer.unwrap_or_default());
                let colon = if text.is_empty() { "" } else { ": " };
                Err((format!("HTTP {}{colon}{text}", head.status), of_status(head.status, &head.headers)))
            }
        }
    }

    /// An answer to a post, in the encoding that it names.
    fn accepted(&self, headers: &HeaderMap, bytes: &[u8]) -> Answer {
        match is_json(headers) {
            true => {
                let answer: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
                let success = &answer["partialSuccess"];
                let rejected = &success[match self.target.signal {
                    Signal::Traces => "rejectedSpans",
                    Signal::Metrics => "rejectedDataPoints",
                    Signal::Logs => "rejectedLogRecords",
                }];
                // 64-bit integers are strings in this encoding; numbers are to be taken too.
                let number = rejected.as_str().and_then(|text| text.parse().ok()).or(rejected.as_u64());
                Answer {
                    rejected: number.unwrap_or(0),
                    text: success["errorMessage"].as_str().unwrap_or_default().to_owned(),
                }
            }
            false => partial_success(self.target.signal, bytes),
        }
    }

    async fn call(&self, bytes: Bytes) -> Result<Answer, (String, Retry)> {
        let path = match self.target.signal {
            Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        };
        let stamped = Stamped { http: self.http.clone(), target: &self.target };
        let mut grpc = Grpc::with_origin(stamped, self.target.endpoint.value.clone())
            .max_decoding_message_size(ANSWER_LIMIT)
            .accept_compressed(CompressionEncoding::Gzip);
        if self.target.gzip.value {
            grpc = grpc.send_compressed(CompressionEncoding::Gzip);
        }
        let mut request = tonic::Request::new(bytes);
        request.set_timeout(self.target.timeout.value);
        grpc.ready().await.map_err(|error| of_transport(&error))?;
        match grpc.unary(request, PathAndQuery::from_static(path), Opaque).await {
            Ok(answer) => Ok(partial_success(self.target.signal, &answer.into_inner())),
            Err(status) => Err(of_grpc(&status)),
        }
    }
}

const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("lens-runtime/", env!("CARGO_PKG_VERSION")));

fn http_client(target: &Target, tls: ClientConfig) -> HttpClient {
    let mut tcp = HttpConnector::new();
    // The scheme is for the layer around it.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_connect_timeout(Some(target.timeout.value));
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let is_grpc = target.protocol.value == OtlpProtocol::Grpc;
    let connector = match is_grpc {
        true => connector.enable_http2().wrap_connector(tcp),
        false => connector.enable_http1().enable_http2().wrap_connector(tcp),
    };
    legacy::Client::builder(TokioExecutor::new())
        .http2_only(is_grpc)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .build(connector)
}

/// The headers of the configuration, over whatever stands there.
fn stamp(headers: &mut HeaderMap, target: &Target) {
    for (name, value) in &target.headers {
        headers.insert(name.clone(), value.value.clone());
    }
}

/// The client as gRPC uses it.
struct Stamped<'a> {
    http: HttpClient,
    target: &'a Target,
}

impl Service<Request<tonic::body::Body>> for Stamped<'_> {
    type Response = <HttpClient as Service<Request<tonic::body::Body>>>::Response;
    type Error = legacy::Error;
    type Future = legacy::ResponseFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<tonic::body::Body>>::poll_ready(&mut self.http, context)
    }

    fn call(&mut self, mut request: Request<tonic::body::Body>) -> Self::Future {
        request.headers_mut().insert(header::USER_AGENT, USER_AGENT);
        stamp(request.headers_mut(), self.target);
        self.http.call(request)
    }
}

/// Messages as the bytes that they are: requests are encoded before, answers decoded behind.
struct Opaque;

impl Codec for Opaque {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Opaque;
    type Decoder = Opaque;

    fn encoder(&mut self) -> Opaque {
        Opaque
    }

    fn decoder(&mut self) -> Opaque {
        Opaque
    }
}

impl Encoder for Opaque {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Opaque {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

fn gzipped(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let _infallible = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default().into()
}

/// What of a request was rejected. An answer that cannot be read is one that has nothing to say.
fn partial_success(signal: Signal, bytes: &[u8]) -> Answer {
    macro_rules! read {
        ($message:ty, $rejected:ident) => {
            <$message>::decode(bytes).ok().and_then(|answer| answer.partial_success).map(|success| Answer {
                rejected: u64::try_from(success.$rejected).unwrap_or(0),
                text: success.error_message,
            })
        };
    }
    let answer = match signal {
        Signal::Traces => read!(ExportTraceServiceResponse, rejected_spans),
        Signal::Metrics => read!(ExportMetricsServiceResponse, rejected_data_points),
        Signal::Logs => read!(ExportLogsServiceResponse, rejected_log_records),
    };
    answer.unwrap_or_default()
}

fn is_json(headers: &HeaderMap) -> bool {
    content_type(headers).starts_with("application/json")
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// What a receiver says of a failure: a status, in protobuf or JSON, or text. Pages are not repeated.
fn failure_text(headers: &HeaderMap, bytes: &[u8]) -> String {
    match content_type(headers).split(';').next().unwrap_or_default() {
        "application/x-protobuf" => {
            tonic_types::pb::Status::decode(bytes).map(|status| status.message).unwrap_or_default()
        }
        "application/json" => {
            let answer: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
            answer["message"].as_str().unwrap_or_default().to_owned()
        }
        "text/plain" => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

/// Which HTTP failures may pass is OTLP's word.
fn of_status(status: StatusCode, headers: &HeaderMap) -> Retry {
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            let seconds =
                headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            seconds.map_or(Retry::Later, |seconds| Retry::After(Duration::from_secs(seconds)))
        }
        _ => Retry::Refused,
    }
}

/// Which gRPC failures may pass is OTLP's word too.
fn of_grpc(status: &Status) -> (String, Retry) {
    // A status with a cause was made on this side: the request did not get through.
    if let Some(cause) = status.source() {
        return of_transport(cause);
    }
    let pause = status.get_details_retry_info().and_then(|info| info.retry_delay).map(Retry::After);
    let retry = match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => pause.unwrap_or(Retry::Later),
        Code::ResourceExhausted => pause.unwrap_or(Retry::Refused),
        _ => Retry::Refused,
    };
    (format!("gRPC {:?}: {}", status.code(), status.message()), retry)
}

/// A request that did not get through, with all its causes.
fn of_transport(error: &(dyn StdError + 'static)) -> (String, Retry) {
    let causes: Vec<&(dyn StdError + 'static)> =
        std::iter::successors(Some(error), |&error| error.source()).collect();
    let is_connect = causes
        .iter()
        .any(|cause| cause.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect));
    let mut texts: Vec<String> = causes.iter().map(ToString::to_string).collect();
    texts.dedup();
    (texts.join(": "), if is_connect { Retry::Unreachable } else { Retry::Unanswered })
}
