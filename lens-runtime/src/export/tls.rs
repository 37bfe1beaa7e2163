//! Whom does the wire trust, and as whom does it speak?

use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::config::{Setting, Target};
use crate::error::Error;

/// The TLS of a target: the certificates that were named for it, or else the machine's, or else
/// Mozilla's. For `http://` nothing is read, since nothing is used.
///
/// # Errors
/// If a file cannot be read, or does not hold what it should.
pub(super) fn config(target: &Target) -> Result<ClientConfig, Error> {
    // The provider is named, because rustls panics where two are linked and none is.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid(&target.endpoint.origin, format!("TLS cannot be set up: {error}")))?;
    if target.endpoint.value.scheme_str() != Some("https") {
        return Ok(versions.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    }
    let builder = versions.with_root_certificates(roots(target)?);
    let Some((certificate, key)) = &target.identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(certificate)?;
    let key_der = PrivateKeyDer::from_pem_file(&key.value)
        .map_err(|error| unreadable(key, "a private key in PEM", &error))?;
    builder
        .with_client_auth_cert(chain, key_der)
        .map_err(|error| unreadable(key, "the key of the client's certificate", &error))
}

fn roots(target: &Target) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    match &target.roots {
        Some(roots) => {
            for certificate in certificates(roots)? {
                store
                    .add(certificate)
                    .map_err(|error| unreadable(roots, "certificates of authorities", &error))?;
            }
        }
        None => {
            // Some certificates of a machine may be broken; it is usual to do without those.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            }
        }
    }
    Ok(store)
}

fn certificates(file: &Setting<PathBuf>) -> Result<Vec<CertificateDer<'static>>, Error> {
    let expected = "certificates in PEM";
    let found = CertificateDer::pem_file_iter(&file.value)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(file, expected, &error))?;
    match found.is_empty() {
        true => Err(unreadable(file, expected, &"there is none")),
        false => Ok(found),
    }
}

fn unreadable(file: &Setting<PathBuf>, expected: &str, problem: &dyn std::fmt::Display) -> Error {
    Error::invalid(&file.origin, format!("expected {expected} in {}: {problem}", file.value.display()))
}
