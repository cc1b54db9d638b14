//! Reads `config.json` and the headers of the safetensors of a repository on the hub. No weight is fetched.

use std::io::Write;

use plimsoll_base::{Bytes, counted};
use plimsoll_hub::{Beginning, Hub, Listing};
use plimsoll_vllm::{Header, ModelConfig, shards};

use super::folder::{Checkpoint, INDEX, faulty};
use crate::report::ErrorReport;
use crate::terminal;

/// Bytes of the first request, which hold the header of most files.
const FIRST: Bytes = Bytes::kib(64);

/// The checkpoint of a repository's newest commit.
pub(super) fn read(hub: &Hub, model: &str) -> Result<Checkpoint, ErrorReport> {
    let listing = hub.listing(model)?;
    let config = hub.text(&listing, "config.json")?;
    let config = ModelConfig::read(&config).map_err(|error| faulty(format!("{model}/config.json"), error))?;
    let mut tensors = Vec::new();
    for header in headers(hub, &listing)? {
        tensors.extend(header.tensors);
    }
    let traffic = hub.traffic();
    let (bytes, requests) = (Bytes::new(traffic.bytes), counted(traffic.requests, "request"));
    writeln!(terminal::stderr(), "fetched config.json and the headers of {model}: {bytes} in {requests}")?;
    Ok(Checkpoint { config, tensors })
}

/// The headers of all files with weights. Those that are longer than the first request are asked for again.
fn headers(hub: &Hub, listing: &Listing) -> Result<Vec<Header>, ErrorReport> {
    let names = files(hub, listing)?;
    let wanted: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), FIRST.get())).collect();
    let mut found = hub.beginnings(listing, &wanted)?;
    let mut longer = Vec::new();
    for (at, beginning) in found.iter().enumerate() {
        let span =
            Header::span(&beginning.bytes, beginning.total).map_err(|error| faulty(&names[at], error))?;
        if u64::try_from(beginning.bytes.len()).is_ok_and(|held| held < span) {
            longer.push((at, span));
        }
    }
    let wanted: Vec<(&str, u64)> = longer.iter().map(|(at, span)| (names[*at].as_str(), *span)).collect();
    for ((at, _), beginning) in longer.iter().zip(hub.beginnings(listing, &wanted)?) {
        found[*at] = beginning;
    }
    let read = |(name, beginning): (&String, &Beginning)| {
        Header::read(&beginning.bytes, beginning.total).map_err(|error| faulty(name, error))
    };
    names.iter().zip(&found).map(read).collect()
}

/// The files of the index, or else all safetensors at the top of the repository.
fn files(hub: &Hub, listing: &Listing) -> Result<Vec<String>, ErrorReport> {
    if listing.files.iter().any(|file| file.path == INDEX) {
        return shards(&hub.text(listing, INDEX)?).map_err(|error| faulty(INDEX, error));
    }
    let paths = listing.files.iter().map(|file| &file.path);
    let files: Vec<String> =
        paths.filter(|path| path.ends_with(".safetensors") && !path.contains('/')).cloned().collect();
    if files.is_empty() {
        let repo = &listing.repo;
        return Err(ErrorReport::new(format!(
            "`{repo}` has no *.safetensors, whose headers state the weights\nhint: `plimsoll plan -hf {repo}` plans a \
                repository of GGUF files"
        )));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use plimsoll_hub::is_repository;

    #[test]
    fn a_repository_is_distinguished_from_a_path() {
        for (name, expected) in [
            ("Qwen/Qwen3-8B", true),
            ("models/qwen", true),
            ("./qwen/model", false),
            ("../qwen", false),
            ("/srv/model", false),
            ("~/model", false),
            ("a/b/c", false),
            ("qwen", false),
            ("a b/c", false),
            ("", false),
        ] {
            assert_eq!(is_repository(name), expected, "{name}");
        }
    }
}
