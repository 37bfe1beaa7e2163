//! Where does telemetry go? The `OTEL_EXPORTER_OTLP_*` variables, resolved for each signal.
//!
//! For every value the program's word comes first, then the signal's own variable, then the one for
//! all signals, then the default. What means nothing is an error here, before training starts. No
//! header's value, no user of a URL and no query is ever shown.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::uri::{Authority, PathAndQuery, Uri};
use http::{HeaderName, HeaderValue};
use opentelemetry_sdk::metrics::Temporality;
use percent_encoding::percent_decode_str;

use super::{Environment, Origin, Setting, TelemetryConfig};
use crate::error::{Error, did_you_mean};
use crate::signal::Signal;

/// How OTLP is spoken.
///
/// ```
/// use lens_runtime::OtlpProtocol;
///
/// assert_eq!(OtlpProtocol::HttpProtobuf.as_str(), "http/protobuf");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// gRPC, by convention on port 4317.
    Grpc,
    /// Protobuf by HTTP, by convention on port 4318.
    HttpProtobuf,
    /// JSON by HTTP, by convention on port 4318.
    HttpJson,
}

impl OtlpProtocol {
    const ALL: [OtlpProtocol; 3] = [OtlpProtocol::Grpc, OtlpProtocol::HttpProtobuf, OtlpProtocol::HttpJson];

    /// The name in `OTEL_EXPORTER_OTLP_PROTOCOL`.
    pub const fn as_str(self) -> &'static str {
        match self {
            OtlpProtocol::Grpc => "grpc",
            OtlpProtocol::HttpProtobuf => "http/protobuf",
            OtlpProtocol::HttpJson => "http/json",
        }
    }
}

/// What a program says of OTLP in code.
#[derive(Clone, Debug, Default)]
pub(crate) struct InCode {
    pub(super) endpoint: Option<Secret>,
    pub(super) protocol: Option<OtlpProtocol>,
    /// Names and values. Not shown is the name either: whoever mixes them up gives the secret first.
    pub(super) headers: Vec<(Secret, Secret)>,
}

/// A text that is not shown.
#[derive(Clone)]
pub(crate) struct Secret(pub(super) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Where one signal goes, and how.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) signal: Signal,
    pub(crate) protocol: Setting<OtlpProtocol>,
    /// With HTTP, where requests are posted; with gRPC, the server.
    pub(crate) endpoint: Setting<Uri>,
    /// In lower case, each name once. The values are marked as sensitive.
    pub(crate) headers: Vec<(HeaderName, Setting<HeaderValue>)>,
    /// How long one request may take.
    pub(crate) timeout: Setting<Duration>,
    pub(crate) gzip: Setting<bool>,
    /// The file with the certificates that are trusted; `None` for the machine's own.
    pub(crate) roots: Option<Setting<PathBuf>>,
    /// The files with the client's certificate and its key.
    pub(crate) identity: Option<(Setting<PathBuf>, Setting<PathBuf>)>,
}

/// The default of OpenTelemetry's specification.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of what is looked for in a receiver's text.
const SHORTEST_SECRET: usize = 4;

/// Headers that the protocol itself needs.
const RESERVED: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "grpc-accept-encoding",
    "grpc-encoding",
    "grpc-timeout",
    "host",
    "te",
    "transfer-encoding",
];

/// The variables of one value: the signal's own and the one for all signals.
type Names = [&'static str; 2];

macro_rules! names {
    ($signal:ident, $suffix:literal) => {
        match $signal {
            Signal::Traces => {
                [concat!("OTEL_EXPORTER_OTLP_TRACES_", $suffix), concat!("OTEL_EXPORTER_OTLP_", $suffix)]
            }
            Signal::Metrics => {
                [concat!("OTEL_EXPORTER_OTLP_METRICS_", $suffix), concat!("OTEL_EXPORTER_OTLP_", $suffix)]
            }
            Signal::Logs => {
                [concat!("OTEL_EXPORTER_OTLP_LOGS_", $suffix), concat!("OTEL_EXPORTER_OTLP_", $suffix)]
            }
        }
    };
}

impl Target {
    /// Where `signal` goes.
    ///
    /// # Errors
    /// If a value means nothing.
    pub(crate) fn resolve(
        signal: Signal,
        config: &TelemetryConfig,
        environment: &Environment,
    ) -> Result<Self, Error> {
        let look = |names: Names| first(environment, names);
        let protocol = match config.otlp.protocol {
            Some(protocol) => Setting::in_code(protocol),
            None => look(names!(signal, "PROTOCOL"))
                .map_or(Ok(Setting::default_of(OtlpProtocol::Grpc)), |text| protocol(&text))?,
        };
        let identity = (look(names!(signal, "CLIENT_CERTIFICATE")), look(names!(signal, "CLIENT_KEY")));
        Ok(Self {
            signal,
            endpoint: endpoint(signal, protocol.value, config, environment)?,
            protocol,
            headers: headers(signal, config, environment)?,
            timeout: look(names!(signal, "TIMEOUT"))
                .map_or(Ok(Setting::default_of(TIMEOUT)), |text| millis(&text))?,
            gzip: look(names!(signal, "COMPRESSION"))
                .map_or(Ok(Setting::default_of(false)), |text| gzip(&text))?,
            roots: look(names!(signal, "CERTIFICATE")).map(|path| path.map(PathBuf::from)),
            identity: match identity {
                (Some(certificate), Some(key)) => {
                    Some((certificate.map(PathBuf::from), key.map(PathBuf::from)))
                }
                (None, None) => None,
                (Some(alone), None) => return Err(half_identity(&alone, names!(signal, "CLIENT_KEY"))),
                (None, Some(alone)) => {
                    return Err(half_identity(&alone, names!(signal, "CLIENT_CERTIFICATE")));
                }
            },
        })
    }

    /// Where it goes, as it may be shown.
    pub(crate) fn shown(&self) -> String {
        shown(&self.endpoint.value)
    }

    /// Removes from a text of the receiver's what it may have repeated and must not be shown: the values of
    /// headers, and the query of the URL. Control characters become spaces.
    pub(crate) fn redacted(&self, text: &str) -> String {
        let plain = |text: &str| text.replace(char::is_control, " ");
        let mut secrets = Vec::new();
        for (_, value) in &self.headers {
            let value = String::from_utf8_lossy(value.value.as_bytes()).into_owned();
            // `Bearer x`, the x of it, and where that is `user:password` in base64, what it stands for.
            let credentials = value.rsplit(' ').next().unwrap_or_default().to_owned();
            if let Some(pair) =
                BASE64_STANDARD.decode(&credentials).ok().and_then(|pair| String::from_utf8(pair).ok())
            {
                secrets.extend(pair.split_once(':').map(|(_, password)| password.to_owned()));
                secrets.push(pair);
            }
            secrets.extend([credentials, value]);
        }
        if let Some(query) = self.endpoint.value.query() {
            let values = query.split('&').filter_map(|pair| pair.split_once('=')).map(|(_, value)| value);
            for part in values.chain([query]) {
                secrets.extend([part.to_owned(), percent_decode_str(part).decode_utf8_lossy().into_owned()]);
            }
        }
        // What is shorter is a number or a flag. The longest first, or a part of it would hide it.
        secrets.retain(|secret| secret.len() >= SHORTEST_SECRET);
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.iter().fold(plain(text), |text, secret| text.replace(&plain(secret), "[redacted]"))
    }
}

/// What is said of a secret: nothing, and of where it goes what may be shown.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Target {
    /// One line, with the origin of each value. Of headers only the names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { signal, protocol, endpoint, timeout, gzip, .. } = self;
        write!(f, "{} go to {} ({})", signal.as_str(), self.shown(), endpoint.origin)?;
        write!(f, " by {} ({})", protocol.value.as_str(), protocol.origin)?;
        write!(f, ", {} ms for a request ({})", timeout.value.as_millis(), timeout.origin)?;
        if gzip.value {
            write!(f, ", gzip ({})", gzip.origin)?;
        }
        for (name, value) in &self.headers {
            write!(f, ", header {name} ({})", value.origin)?;
        }
        if let Some(roots) = &self.roots {
            write!(f, ", trusting {} ({})", roots.value.display(), roots.origin)?;
        }
        if let Some((certificate, _)) = &self.identity {
            write!(f, ", as {} ({})", certificate.value.display(), certificate.origin)?;
        }
        Ok(())
    }
}

/// The value of the first of two variables that is set.
fn first(environment: &Environment, names: Names) -> Option<Setting<String>> {
    names
        .into_iter()
        .find_map(|name| environment.get(name).map(|value| Setting { value, origin: Origin::Variable(name) }))
}

fn protocol(text: &Setting<String>) -> Result<Setting<OtlpProtocol>, Error> {
    let known = OtlpProtocol::ALL.map(OtlpProtocol::as_str);
    let word = text.value.to_lowercase();
    match OtlpProtocol::ALL.into_iter().find(|protocol| protocol.as_str() == word) {
        Some(value) => Ok(Setting { value, origin: text.origin.clone() }),
        None => Err(Error::invalid(
            &text.origin,
            format!(
                "unknown protocol {:?}{}; expected one of {}",
                text.value,
                did_you_mean(&text.value, known),
                known.join(", ")
            ),
        )),
    }
}

/// A time in milliseconds, as OpenTelemetry's variables have it.
pub(super) fn millis(text: &Setting<String>) -> Result<Setting<Duration>, Error> {
    match text.value.parse() {
        Ok(millis) if millis > 0 => {
            Ok(Setting { value: Duration::from_millis(millis), origin: text.origin.clone() })
        }
        _ => Err(Error::invalid(
            &text.origin,
            format!("expected a positive number of milliseconds, got {:?}", text.value),
        )),
    }
}

fn gzip(text: &Setting<String>) -> Result<Setting<bool>, Error> {
    let value = match text.value.to_lowercase().as_str() {
        "gzip" => true,
        "none" => false,
        _ => {
            let problem = format!("unknown compression {:?}; expected gzip or none", text.value);
            return Err(Error::invalid(&text.origin, problem));
        }
    };
    Ok(Setting { value, origin: text.origin.clone() })
}

/// From when metrics count.
///
/// # Errors
/// If the variable means nothing.
pub(super) fn temporality(environment: &Environment) -> Result<Temporality, Error> {
    const NAME: &str = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE";
    let Some(text) = environment.get(NAME) else {
        return Ok(Temporality::Cumulative);
    };
    match text.to_lowercase().as_str() {
        "cumulative" => Ok(Temporality::Cumulative),
        "delta" => Ok(Temporality::Delta),
        "lowmemory" => Ok(Temporality::LowMemory),
        _ => {
            let problem = format!("unknown temporality {text:?}; expected cumulative, delta or lowmemory");
            Err(Error::invalid(&Origin::Variable(NAME), problem))
        }
    }
}

fn half_identity(alone: &Setting<String>, [own, general]: Names) -> Error {
    Error::invalid(&alone.origin, format!("expected {own} or {general} beside it, which are not set"))
}

fn endpoint(
    signal: Signal,
    protocol: OtlpProtocol,
    config: &TelemetryConfig,
    environment: &Environment,
) -> Result<Setting<Uri>, Error> {
    let [own, general] = names!(signal, "ENDPOINT");
    // A signal's own URL is used as it is, one for all signals is a base. The program's is a base too.
    let (text, is_base) = if let Some(Secret(endpoint)) = &config.otlp.endpoint {
        (Setting::in_code(endpoint.trim().to_owned()), true)
    } else if let Some(value) = environment.get(own) {
        (Setting { value, origin: Origin::Variable(own) }, false)
    } else if let Some(value) = environment.get(general) {
        (Setting { value, origin: Origin::Variable(general) }, true)
    } else {
        let port = if protocol == OtlpProtocol::Grpc { 4317 } else { 4318 };
        (Setting::default_of(format!("http://localhost:{port}")), true)
    };
    let invalid = |problem: &str| {
        Error::invalid(&text.origin, format!("expected {problem}, got {:?}", without_secrets(&text.value)))
    };
    let with_scheme = match (text.value.contains("://"), protocol, insecure(signal, environment)?) {
        (true, _, _) => text.value.clone(),
        (false, OtlpProtocol::Grpc, Some(true)) => format!("http://{}", text.value),
        (false, OtlpProtocol::Grpc, Some(false)) => format!("https://{}", text.value),
        (false, _, _) => {
            return Err(Error::invalid(
                &text.origin,
                format!(
                    "expected a URL that begins with http:// or https://, such as http://{0}, got {0:?}",
                    without_secrets(&text.value)
                ),
            ));
        }
    };
    let uri: Uri = with_scheme.parse().map_err(|_| invalid("a URL such as http://localhost:4318"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(invalid("a URL that begins with http:// or https://"));
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        let problem = format!(
            "expected a URL without user and password, got {:?}; they belong into a header, such as \
             OTEL_EXPORTER_OTLP_HEADERS=authorization=Basic%20<base64 of user:password>",
            without_secrets(&text.value)
        );
        return Err(Error::invalid(&text.origin, problem));
    }
    let has_port =
        |authority: &Authority| authority.as_str().rsplit(']').next().is_some_and(|end| end.contains(':'));
    // A user, and a password up to the slash or question mark in it, look like this.
    if uri.authority().is_some_and(|authority| has_port(authority) && authority.port_u16().is_none()) {
        return Err(invalid("a URL whose port is a number"));
    }
    let value = match protocol {
        OtlpProtocol::HttpProtobuf | OtlpProtocol::HttpJson if is_base => with_signal_path(&uri, signal)
            .ok_or_else(|| invalid("a URL that can be extended by the path of a signal"))?,
        _ => uri,
    };
    Ok(Setting { value, origin: text.origin })
}

/// `base` with `/v1/traces` or the like behind its path, in front of its query. A base that ends in
/// the path of a signal already loses it first.
fn with_signal_path(base: &Uri, signal: Signal) -> Option<Uri> {
    let is_signal = |path: &&str| {
        Signal::ALL.iter().any(|signal| path.strip_prefix("/v1/").is_some_and(|name| name == signal.as_str()))
    };
    let path = base.path().trim_end_matches('/');
    let tail = path.rfind("/v1/").map_or("", |at| &path[at..]);
    let path = Some(tail).filter(is_signal).and_then(|tail| path.strip_suffix(tail)).unwrap_or(path);
    let query = base.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut parts = base.clone().into_parts();
    parts.path_and_query = PathAndQuery::try_from(format!("{path}/v1/{}{query}", signal.as_str())).ok();
    Uri::from_parts(parts).ok()
}

/// What `OTEL_EXPORTER_OTLP_INSECURE` says of gRPC endpoints without a scheme.
fn insecure(signal: Signal, environment: &Environment) -> Result<Option<bool>, Error> {
    let Some(text) = first(environment, names!(signal, "INSECURE")) else {
        return Ok(None);
    };
    match text.value.to_lowercase().as_str() {
        "true" => Ok(Some(true)),
        "false" => Ok(Some(false)),
        _ => Err(Error::invalid(&text.origin, format!("expected true or false, got {:?}", text.value))),
    }
}

/// The headers of the program, then of the signal, then of all signals: per name the first wins.
fn headers(
    signal: Signal,
    config: &TelemetryConfig,
    environment: &Environment,
) -> Result<Vec<(HeaderName, Setting<HeaderValue>)>, Error> {
    let mut headers: Vec<(HeaderName, Setting<HeaderValue>)> = Vec::new();
    // Later entries of one source win over earlier ones, as in a map.
    let mut add = |source: Vec<(HeaderName, Setting<HeaderValue>)>| {
        let before = headers.len();
        for (name, value) in source.into_iter().rev() {
            if !headers.iter().any(|(known, _)| *known == name) {
                headers.insert(before, (name, value));
            }
        }
    };
    let in_code = config.otlp.headers.iter().zip(1..);
    add(in_code
        .map(|((Secret(name), Secret(value)), number)| {
            header(&format!("header {number}"), name, value.as_bytes(), &Origin::Code)
        })
        .collect::<Result<_, _>>()?);
    for name in names!(signal, "HEADERS") {
        let text = environment.get(name).unwrap_or_default();
        add(header_list(&text, &Origin::Variable(name))?);
    }
    Ok(headers)
}

/// `name=value,name=value`, values percent-encoded, as the specification has it.
fn header_list(text: &str, origin: &Origin) -> Result<Vec<(HeaderName, Setting<HeaderValue>)>, Error> {
    text.split(',')
        .enumerate()
        .map(|(index, entry)| (index + 1, entry.trim()))
        .filter(|(_, entry)| !entry.is_empty())
        .map(|(number, entry)| {
            // The entry itself is not shown: what stands there may be a secret.
            let (name, value) = entry.split_once('=').ok_or_else(|| {
                Error::invalid(origin, format!("entry {number}: expected name=value, got no equals sign"))
            })?;
            let value: Vec<u8> = percent_decode_str(value.trim()).collect();
            header(&format!("entry {number}"), name.trim(), &value, origin)
        })
        .collect()
}

fn header(
    what: &str,
    name: &str,
    value: &[u8],
    origin: &Origin,
) -> Result<(HeaderName, Setting<HeaderValue>), Error> {
    let invalid = |problem: String| Error::invalid(origin, format!("{what}: {problem}"));
    let name = HeaderName::try_from(name)
        // What stands there may be the secret.
        .map_err(|_| invalid("expected the name of a header in front of the equals sign".to_owned()))?;
    if RESERVED.contains(&name.as_str()) {
        return Err(invalid(format!("header {name} belongs to the protocol and cannot be set")));
    }
    let mut value = HeaderValue::from_bytes(value)
        .map_err(|_| invalid(format!("the value of header {name} holds bytes that no header may hold")))?;
    value.set_sensitive(true);
    Ok((name, Setting { value, origin: origin.clone() }))
}

/// A URL as it may be shown: without user and query.
fn shown(uri: &Uri) -> String {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit('@').next().unwrap_or_default();
    let path = if uri.path() == "/" { "" } else { uri.path() };
    format!("{}://{host}{path}", uri.scheme_str().unwrap_or_default())
}

/// A text that was meant as a URL as it may be shown.
fn without_secrets(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    let rest = match rest.split_once(['?', '#']) {
        // The query's, or the password's.
        Some((_, behind)) if behind.contains('@') => "[redacted]",
        Some((rest, _)) => rest,
        None => rest,
    };
    let rest = rest.rsplit('@').next().unwrap_or_default();
    match scheme {
        "" => rest.to_owned(),
        _ => format!("{scheme}://{rest}"),
    }
}
