//! Lists the files to download for a model (named by repository or URL), with their sizes and digests.

use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use plimsoll_base::Bytes;
use plimsoll_model::Dialect;
use plimsoll_model::repository;
use plimsoll_model::split::{SplitName, siblings};
use ring::digest::{SHA256, digest};

use crate::address::{Address, printable};
use crate::downloaded::repository_folder;
use crate::error::{HubError, HubFailure};
use crate::listing::Listing;
use crate::source::{Hub, ModelPlace};

/// Longest quantisation and longest name of a file.
const LONGEST_TAG: usize = 64;
const LONGEST_NAME: usize = 128;
/// Digits of a digest that tell two addresses apart.
const TELLING: usize = 16;

/// Files of a model that is to be downloaded.
#[derive(Debug)]
pub struct DownloadPlan {
    pub name: String,
    /// The folder of its repository, or of its server.
    pub(crate) root: PathBuf,
    pub(crate) commit: String,
    /// The model's files, then its projector if it has one.
    pub(crate) files: Vec<PlannedFile>,
    pub(crate) has_projector: bool,
}

#[derive(Debug)]
pub(crate) struct PlannedFile {
    pub(crate) path: String,
    pub(crate) size: u64,
    /// SHA-256 as the server states it. Servers other than the hub state none.
    pub(crate) digest: Option<String>,
    pub(crate) etag: Option<String>,
    /// The name of its blob.
    pub(crate) key: String,
    pub(crate) address: Address,
}

impl PlannedFile {
    /// True if parts of this file are distinguished from those of another that has its address by now.
    pub(crate) fn is_distinguished(&self) -> bool {
        self.digest.is_some() || self.etag.is_some()
    }
}

impl DownloadPlan {
    pub fn size(&self) -> Bytes {
        self.files.iter().map(|file| Bytes::new(file.size)).sum()
    }
}

/// True for an option that names a model by the address of its file.
fn is_address(requested: &str) -> bool {
    requested.starts_with("https://") || requested.starts_with("http://")
}

/// The name under which a model that is asked for will be served: that of the hub, or of the file at an
/// address.
pub fn download_name(requested: &str) -> Result<String, HubError> {
    if is_address(requested) { Ok(named(&Address::parse(requested)?)?.1) } else { Ok(requested.to_owned()) }
}

/// The name of the file at an address, and that of its model.
fn named(address: &Address) -> Result<(String, String), HubError> {
    let file = address.path().rsplit('/').next().unwrap_or_default();
    let file = percent_decode_str(file).decode_utf8_lossy().into_owned();
    let prefix = SplitName::parse(&file).map(|split| split.prefix).or_else(|| file.strip_suffix(".gguf"));
    // The name becomes one of a model, and of a file.
    let is_plain = |name: &&str| is_plain(name) && !name.starts_with('.') && name.len() <= LONGEST_NAME;
    let name = prefix.filter(is_plain).ok_or_else(|| HubFailure::NoAddress.of(address))?.to_owned();
    Ok((file, name))
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c))
}

fn hex(text: &str) -> String {
    digest(&SHA256, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Hub {
    /// The files of `USER/REPO`, `USER/REPO:QUANT` or `https://HOST/PATH.gguf`; their headers show that they
    /// are a model.
    pub fn plan_download(&self, requested: &str, dialect: Dialect) -> Result<DownloadPlan, HubError> {
        if is_address(requested) {
            self.plan_address(&Address::parse(requested)?, dialect)
        } else {
            self.plan_repository(requested, dialect)
        }
    }

    fn plan_repository(&self, name: &str, dialect: Dialect) -> Result<DownloadPlan, HubError> {
        let (repo, tag) = name.split_once(':').map_or((name, None), |(repo, tag)| (repo, Some(tag)));
        if tag.is_some_and(|tag| tag.len() > LONGEST_TAG || !is_plain(tag)) {
            return Err(HubFailure::NoRepository.of(printable(name)));
        }
        let listing = Listing::fetch(&self.client, repo)?;
        let paths = listing.paths();
        let mut files = repository::model(&paths, tag).map_err(|error| HubFailure::from(error).of(repo))?;
        self.listed(&listing, &files, dialect, &[])?.model()?;
        let projector = files.first().and_then(|first| repository::projector(&paths, first));
        files.extend(projector.map(str::to_owned));
        let planned = files.into_iter().map(|path| {
            let file = listing.file(&path);
            let known = file.and_then(|file| Some((file.size?, file.digest.clone()?)));
            let (size, digest) = known.ok_or_else(|| HubFailure::NoDigest.of(&path))?;
            let (address, key) = (listing.address(&self.client, &path), digest.to_ascii_lowercase());
            Ok(PlannedFile { path, size, digest: Some(key.clone()), etag: None, key, address })
        });
        let has_projector = projector.is_some();
        Ok(DownloadPlan {
            name: name.to_owned(),
            root: repository_folder(repo),
            files: planned.collect::<Result<_, HubError>>()?,
            commit: listing.commit.clone(),
            has_projector,
        })
    }

    // DECISION: a server that is no hub states no digest, so the file is as trustworthy as the connection.
    // Its length and strong ETag make sure that the parts are of one file; without that ETag it comes as one
    // answer.
    fn plan_address(&self, address: &Address, dialect: Dialect) -> Result<DownloadPlan, HubError> {
        let (_, name) = named(address)?;
        let ModelPlace::Remote(remote) = self.at(address, dialect)? else {
            return Err(HubFailure::NoAddress.of(address));
        };
        remote.model()?;
        let addresses = siblings(address.path()).into_iter().map(|path| address.with_path(&path));
        let files = addresses.zip(remote.origins()).map(|(address, origin)| {
            let (path, _) = named(&address)?;
            let digest = origin.sha256.as_ref().map(|digest| digest.to_ascii_lowercase());
            let etag = origin.etag.clone();
            let reported_apart = || {
                let of =
                    format!("{} {} {}", address.full(), origin.size, etag.as_deref().unwrap_or_default());
                format!("url-{}", hex(&of))
            };
            let key = digest.clone().unwrap_or_else(reported_apart);
            Ok(PlannedFile { path, size: origin.size, digest, etag, key, address })
        });
        let files: Vec<PlannedFile> = files.collect::<Result<_, HubError>>()?;
        let mut commit = hex(&address.full());
        commit.truncate(TELLING);
        Ok(DownloadPlan { root: PathBuf::from("addresses"), name, commit, files, has_projector: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_after_its_file_and_never_after_anything_else() {
        for (requested, name) in [
            ("user/repo:Q4_K_M", Some("user/repo:Q4_K_M")),
            ("https://h/a/b/model-Q8_0.gguf?download=true", Some("model-Q8_0")),
            ("http://h:8080/m-00001-of-00003.gguf", Some("m")),
            ("https://h/a%62c.gguf", Some("abc")),
            ("https://h/..%2f..%2fetc.gguf", None),
            ("https://h/.hidden.gguf", None),
            ("https://h/.gguf", None),
            ("https://h/a%20b.gguf", None),
            ("https://h/model.bin", None),
            ("https://h/", None),
            ("https://user:secret@h/m.gguf", None),
            ("https://", None),
        ] {
            assert_eq!(download_name(requested).ok().as_deref(), name, "{requested}");
        }
        assert!(download_name(&format!("https://h/{}.gguf", "x".repeat(LONGEST_NAME + 1))).is_err());
    }
}
