//! Lists the files of a repository through the HTTP interface of Hugging Face's hub.

use std::fmt;
use std::marker::PhantomData;

use plimsoll_base::Order;
use plimsoll_model::repository::{Quantisation, quantisations};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::address::{Address, printable};
use crate::client::Client;
use crate::error::{HubError, HubFailure};

/// Pages of a list that are read; a page has 1000 files.
const PAGES: usize = 20;
/// Longest path; a file system allows no longer name.
const LONGEST: usize = 1024;
/// Items of a list, and files of all its pages.
const MOST: usize = 20_000;

/// File of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubFile {
    /// Path in the repository, with `/`.
    pub path: String,
    pub size: Option<u64>,
    /// SHA-256 of the file.
    pub digest: Option<String>,
}

/// Files of a repository at one commit.
#[derive(Clone, Debug)]
pub struct Listing {
    pub repo: String,
    pub commit: String,
    pub files: Vec<HubFile>,
}

// DECISION: each item is read by itself into its own type, and their number is bounded. Items of any form, as
// a tree of values, would take a hundred times the bytes of the answer.
/// Items of a list that have the form of `T`; the others are passed over, as llama.cpp passes over them.
struct FittingItems<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for FittingItems<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ItemVisitor(PhantomData))
    }
}

struct ItemVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ItemVisitor<T> {
    type Value = FittingItems<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let (mut fitting, mut count) = (Vec::new(), 0);
        while let Some(item) = list.next_element::<&RawValue>()? {
            count += 1;
            if count > MOST {
                return Err(A::Error::custom(too_many()));
            }
            fitting.extend(serde_json::from_str(item.get()).ok());
        }
        Ok(FittingItems(fitting))
    }
}

fn too_many() -> String {
    format!("the list has more than {MOST} items")
}

#[derive(Deserialize)]
struct Refs {
    branches: FittingItems<Branch>,
}

#[derive(Deserialize)]
struct Branch {
    name: String,
    #[serde(rename = "targetCommit")]
    commit: String,
}

#[derive(Deserialize)]
struct TreeItem {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    size: Option<u64>,
    lfs: Option<LargeFile>,
}

#[derive(Deserialize)]
struct LargeFile {
    oid: Option<String>,
    size: Option<u64>,
}

impl Listing {
    /// Asks the hub (`common/hf-cache.cpp: get_repo_files @ 0.5.0`).
    pub fn fetch(client: &Client, repo: &str) -> Result<Self, HubError> {
        if !is_repository(repo) {
            return Err(HubFailure::NoRepository.of(printable(repo)));
        }
        let api = client.hub().below(&format!("api/models/{repo}"));
        // Errors name the repository: its addresses in the interface mean nothing to a reader.
        let named = |error: HubError| HubError { of: format!("{repo} ({})", error.of), ..error };
        let commit = commit(client, &api).map_err(named)?;
        let mut page = Some(api.below(&format!("tree/{commit}")).with_query("recursive=true"));
        let mut files = Vec::new();
        for _ in 0..PAGES {
            let Some(address) = page.take() else { break };
            let (bytes, next) = client.answer(&address).map_err(named)?;
            let items: FittingItems<TreeItem> = decoded(&bytes, &address)?;
            files.extend(items.0.into_iter().filter_map(file));
            if files.len() > MOST {
                return Err(named(HubFailure::Answer(too_many()).of(&address)));
            }
            // A list that leads elsewhere would get the token there, or loop.
            page = next.filter(|next| client.hub().trusts(next) && *next != address);
        }
        // The hub sorts names; a mirror may not, and the first of several is the one that is chosen.
        files.order_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { repo: repo.to_owned(), commit, files })
    }

    pub(crate) fn address(&self, client: &Client, path: &str) -> Address {
        client.hub().below(&format!("{}/resolve/{}/{path}", self.repo, self.commit))
    }

    pub(crate) fn file(&self, path: &str) -> Option<&HubFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// All models of the repository, by name.
    pub fn quantisations(&self) -> Vec<Quantisation> {
        let files: Vec<(&str, Option<u64>)> =
            self.files.iter().map(|file| (file.path.as_str(), file.size)).collect();
        quantisations(&files)
    }

    pub(crate) fn paths(&self) -> Vec<&str> {
        self.files.iter().map(|file| file.path.as_str()).collect()
    }
}

/// The commit of `main`, else of the first branch.
fn commit(client: &Client, api: &Address) -> Result<String, HubError> {
    let address = api.below("refs");
    let answer = client.answer(&address)?.0;
    let refs: Refs = decoded(&answer, &address)?;
    let branches: Vec<Branch> =
        refs.branches.0.into_iter().filter(|branch| is_hex(&branch.commit, 40)).collect();
    let main = branches.iter().find(|branch| branch.name == "main").or(branches.first());
    let none = || HubFailure::Answer("the answer names no branch of the repository".to_owned()).of(&address);
    main.map(|branch| branch.commit.clone()).ok_or_else(none)
}

fn decoded<'a, T: Deserialize<'a>>(bytes: &'a [u8], address: &Address) -> Result<T, HubError> {
    serde_json::from_slice(bytes).map_err(|error| HubFailure::Answer(error.to_string()).of(address))
}

/// One item of a list; `None` for a folder and for a path that leads elsewhere.
fn file(item: TreeItem) -> Option<HubFile> {
    if item.kind != "file" || !is_below(&item.path) {
        return None;
    }
    let (digest, size) = match item.lfs {
        Some(large) => (large.oid, large.size.or(item.size)),
        None => (None, item.size),
    };
    Some(HubFile { path: item.path, size, digest: digest.filter(|text| is_sha256(text)) })
}

/// True for a relative path that stays below its folder.
fn is_below(path: &str) -> bool {
    let parts = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    parts && path.len() <= LONGEST && !path.chars().any(|c| c.is_control() || c == '\\')
}

/// `USER/REPO` of letters, digits, `_`, and `.` or `-` between them (`hf-cache.cpp: is_valid_repo_id @
/// 0.5.0`).
pub fn is_repository(repo: &str) -> bool {
    repo.len() <= 256 && repo.split_once('/').is_some_and(|(user, name)| is_part(user) && is_part(name))
}

/// True for a name that may stand on either side of a repository's slash.
pub(crate) fn is_part(part: &str) -> bool {
    let is_base = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    let mut seen = None;
    is_base(part.chars().next())
        && is_base(part.chars().last())
        && part.chars().all(|c| {
            let fine = is_base(Some(c)) || ((c == '.' || c == '-') && is_base(seen));
            seen = Some(c);
            fine
        })
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(crate) fn is_sha256(text: &str) -> bool {
    is_hex(text, 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_repository_only_as_llama_server_reads_one() {
        for repo in ["a/b", "ggml-org/gemma-3-4b-it-GGUF", "_a/b_", "u1/Qwen2.5-7B_x.y"] {
            assert!(is_repository(repo), "{repo}");
        }
        for repo in ["", "a", "a/", "/b", "a/b/c", "a/.b", "a-/b", "a/b--c", "../..", "a b/c", "a/b?c", "ä/b"]
        {
            assert!(!is_repository(repo), "{repo}");
        }
    }

    #[test]
    fn items_of_a_list_that_lead_elsewhere_are_passed_over() {
        let items = |text: &str| serde_json::from_str::<FittingItems<TreeItem>>(text).unwrap().0;
        let item = |path: &str| {
            let text = serde_json::json!([{"type": "file", "path": path, "size": 5}]).to_string();
            items(&text).into_iter().find_map(file)
        };
        assert_eq!(item("Q4/a.gguf").unwrap().size, Some(5));
        for path in ["", "/etc/passwd", "../a.gguf", "a/../../b", "a//b", "a\\b", "a\nb", &"x".repeat(2000)] {
            assert_eq!(item(path), None, "{path}");
        }
        for odd in ["null", "5", "{}", r#"{"type":"file","path":5}"#, r#"{"type":"directory","path":"a"}"#] {
            let all = items(&format!(r#"[{odd},{{"type":"file","path":"a.gguf","more":[{{"":0}}]}}]"#));
            assert_eq!(all.into_iter().filter_map(file).count(), 1, "{odd}");
        }
    }

    /// 16 MiB of such items were 1.5 GiB as a tree of values.
    #[test]
    fn a_list_of_a_million_items_is_refused_before_it_takes_memory() {
        let list = format!("[{{\"\":0}}{}]", ",{\"\":0}".repeat(1 << 21));
        let address = Address::parse("http://127.0.0.1:1").unwrap();
        let error = decoded::<FittingItems<TreeItem>>(list.as_bytes(), &address).err().unwrap().to_string();
        assert!(error.contains("the list has more than 20000 items"), "{error}");
        let refs = format!("{{\"branches\":{list}}}");
        assert!(decoded::<Refs>(refs.as_bytes(), &address).is_err());
    }
}
