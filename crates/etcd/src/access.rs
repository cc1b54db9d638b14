//! Holds the credentials for the fleet's store (etcd): the trusted authority, this client's certificate, or a
//! user with a password.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_base::Bytes;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::StoreAddress;

/// Most bytes of a file of certificates, a key or a password.
const LONGEST: Bytes = Bytes::mib(1);

/// Files and names by which a client and its store know each other. etcd's own client calls them `--cacert`,
/// `--cert`, `--key` and `--user`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreAccess {
    /// Certificates of the authorities of the store; without it, those that the machine trusts.
    pub ca: Option<PathBuf>,
    /// Certificate of this client, with those between it and its authority.
    pub certificate: Option<PathBuf>,
    pub certificate_key: Option<PathBuf>,
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
}

/// Error in the settings of the access to a store, or in a file that they name.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("`{key}` needs TLS, and the store's address begins with etcd://; hint: write etcds:// there")]
    NoTls { key: &'static str },
    #[error("`{given}` is set without `{missing}`; hint: set both, or none")]
    Half { given: &'static str, missing: &'static str },
    #[error("cannot read `{key}` from {}: {error}", path.display())]
    Read { key: &'static str, path: PathBuf, error: io::Error },
    #[error("`{key}` names {}, which has no {what} in PEM", path.display())]
    Pem { key: &'static str, path: PathBuf, what: &'static str },
    #[error(
        "this machine has no trusted certificate authorities; hint: set `store-ca` to the file of the \
            authority that signed the certificate of etcd"
    )]
    NoAuthority,
    #[error("`store-certificate` and `store-certificate-key` cannot be used: {0}")]
    Certificate(rustls::Error),
}

const CA: &str = "store-ca";
const CERTIFICATE: &str = "store-certificate";
const CERTIFICATE_KEY: &str = "store-certificate-key";
const USER: &str = "store-user";
const PASSWORD_FILE: &str = "store-password-file";

impl StoreAccess {
    /// Checks the settings against the address and reads every file once.
    pub(crate) fn check(&self, address: &StoreAddress) -> Result<Option<ClientConfig>, AccessError> {
        match (&self.user, &self.password_file) {
            (Some(_), None) => return Err(AccessError::Half { given: USER, missing: PASSWORD_FILE }),
            (None, Some(_)) => return Err(AccessError::Half { given: PASSWORD_FILE, missing: USER }),
            (Some(_), Some(_)) => drop(self.password()?),
            (None, None) => {}
        }
        if address.is_encrypted {
            return self.tls().map(Some);
        }
        let files =
            [(CA, &self.ca), (CERTIFICATE, &self.certificate), (CERTIFICATE_KEY, &self.certificate_key)];
        match files.into_iter().find(|(_, file)| file.is_some()) {
            Some((key, _)) => Err(AccessError::NoTls { key }),
            None => Ok(None),
        }
    }

    /// Settings of TLS from the files as they are now.
    pub(crate) fn tls(&self) -> Result<ClientConfig, AccessError> {
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(path) => {
                let (added, _) = roots.add_parsable_certificates(certificates(CA, path)?);
                if added == 0 {
                    return Err(AccessError::Pem {
                        key: CA,
                        path: path.clone(),
                        what: "certificate of an authority",
                    });
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    return Err(AccessError::NoAuthority);
                }
            }
        }
        let provider = rustls::crypto::ring::default_provider();
        let builder =
            ClientConfig::builder_with_provider(provider.into()).with_safe_default_protocol_versions();
        let builder = builder.map_err(AccessError::Certificate)?.with_root_certificates(roots);
        match (&self.certificate, &self.certificate_key) {
            (Some(certificate), Some(key)) => {
                let chain = certificates(CERTIFICATE, certificate)?;
                builder.with_client_auth_cert(chain, private_key(key)?).map_err(AccessError::Certificate)
            }
            (None, None) => Ok(builder.with_no_client_auth()),
            (Some(_), None) => Err(AccessError::Half { given: CERTIFICATE, missing: CERTIFICATE_KEY }),
            (None, Some(_)) => Err(AccessError::Half { given: CERTIFICATE_KEY, missing: CERTIFICATE }),
        }
    }

    /// The password as the file has it now, without the end of its line.
    pub(crate) fn password(&self) -> Result<String, AccessError> {
        let path = self.password_file.as_deref().unwrap_or(Path::new(""));
        let read = |error| AccessError::Read { key: PASSWORD_FILE, path: path.to_owned(), error };
        let text = plimsoll_file::read_text(path, LONGEST).map_err(read)?;
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    }
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, AccessError> {
    plimsoll_file::read(path, LONGEST).map_err(|error| AccessError::Read {
        key,
        path: path.to_owned(),
        error,
    })
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, AccessError> {
    let text = read(key, path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.ok().filter(|all| !all.is_empty());
    all.ok_or_else(|| AccessError::Pem { key, path: path.to_owned(), what: "certificate" })
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, AccessError> {
    let text = read(CERTIFICATE_KEY, path)?;
    let none = |_| AccessError::Pem { key: CERTIFICATE_KEY, path: path.to_owned(), what: "private key" };
    PrivateKeyDer::from_pem_slice(&text).map_err(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(access: &StoreAccess, address: &str) -> String {
        access.check(&address.parse().unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn settings_that_contradict_each_other_name_what_to_set() {
        let file = || Some(PathBuf::from("/none"));
        let ca = StoreAccess { ca: file(), ..StoreAccess::default() };
        assert!(error(&ca, "etcd://a").contains("`store-ca` needs TLS"));
        assert!(error(&ca, "etcds://a").contains("cannot read `store-ca` from /none"));
        let user = StoreAccess { user: Some("a".to_owned()), ..StoreAccess::default() };
        assert!(error(&user, "etcd://a").contains("without `store-password-file`"));
        let password = StoreAccess { password_file: file(), ..StoreAccess::default() };
        assert!(error(&password, "etcd://a").contains("without `store-user`"));
        let both = StoreAccess { password_file: file(), ..user };
        assert!(error(&both, "etcd://a").contains("cannot read `store-password-file` from /none"));
        assert!(StoreAccess::default().check(&"etcd://a".parse().unwrap()).unwrap().is_none());
    }

    #[test]
    fn files_without_pem_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, "no certificate").unwrap();
        let access = StoreAccess { ca: Some(path.clone()), ..StoreAccess::default() };
        let expected = format!("`store-ca` names {}, which has no certificate in PEM", path.display());
        assert_eq!(error(&access, "etcds://a"), expected);
    }
}
