//! Finds the files of a split GGUF model by their names, and joins their headers into one model.
//!
//! The keys `split.no` (from 0), `split.count` and `split.tensors.count` define the set (`llama.cpp:
//! llama_split_path, llama-model-loader.cpp @ b10605`).

use std::collections::HashSet;

use super::gguf::Header;
use super::{ModelError, Tensor};

/// Files of a model at most; a model of a terabyte in files of a gigabyte has as many.
const MOST: u16 = 1024;

/// Name of one file of a split model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitName<'a> {
    pub prefix: &'a str,
    /// From 1, as in the name.
    pub number: u16,
    pub count: u16,
}

impl<'a> SplitName<'a> {
    /// Parses a path or a name; `None` if it is not a file of a split model.
    pub fn parse(path: &'a str) -> Option<Self> {
        let rest = path.strip_suffix(".gguf")?;
        let (rest, count) = rest.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        // `llama_split_path` pads to five digits, so shorter names belong to no set.
        let (number, count) = (five_digits(number)?, five_digits(count)?);
        let plausible = !prefix.is_empty() && (1..=count).contains(&number) && count <= MOST;
        plausible.then_some(Self { prefix, number, count })
    }

    /// The names of all files of the set, this one among them.
    pub fn all(self) -> impl Iterator<Item = String> + use<'a> {
        let name = move |number| format!("{}-{number:05}-of-{:05}.gguf", self.prefix, self.count);
        (1..=self.count).map(name)
    }
}

/// `%05d`: five digits, more only if five are not enough.
fn five_digits(text: &str) -> Option<u16> {
    let digits = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

/// The files that `path` needs: its whole set, in order, or itself alone.
pub fn siblings(path: &str) -> Vec<String> {
    match SplitName::parse(path) {
        Some(name) => name.all().collect(),
        None => vec![path.to_owned()],
    }
}

/// The tensors of all files, once it is certain that the files are one set, whole and in order.
pub(super) fn join(headers: &[Header<'_>]) -> Result<Vec<Tensor>, ModelError> {
    check_set(headers)?;
    let count = headers.iter().map(|header| header.tensors.len()).sum();
    let mut tensors = Vec::with_capacity(count);
    let mut seen = HashSet::new();
    for (file, header) in (0_u16..).zip(headers) {
        for info in &header.tensors {
            // one file has no name twice: its header would not have been read
            if headers.len() > 1 && !seen.insert(info.name) {
                let tensor = info.name.to_owned();
                return Err(ModelError::DuplicateTensor { tensor, file: file + 1 });
            }
            tensors.push(Tensor::listed(info, file));
        }
    }
    Ok(tensors)
}

fn check_set(headers: &[Header<'_>]) -> Result<(), ModelError> {
    let first = headers.first().ok_or(ModelError::NoFile)?;
    let count = first.u32("split.count")?.unwrap_or(0).max(1);
    // A wrong number of files would give a plan with layers missing.
    if usize::try_from(count) != Ok(headers.len()) || count > u32::from(MOST) {
        return Err(ModelError::FileCount { stated: count, given: headers.len() });
    }
    // Files of one part may carry the keys as well, with any number.
    if count == 1 {
        return Ok(());
    }
    for (number, header) in (0..count).zip(headers) {
        check_place(header, number, count)?;
    }
    let found: usize = headers.iter().map(|header| header.tensors.len()).sum();
    match first.u32("split.tensors.count")? {
        // The sum over all files: it tells an interrupted gguf-split from a whole set.
        Some(stated) if usize::try_from(stated) == Ok(found) => Ok(()),
        stated => Err(ModelError::TensorCount { stated: stated.unwrap_or(0), found }),
    }
}

fn check_place(header: &Header<'_>, number: u32, count: u32) -> Result<(), ModelError> {
    let stated = header.u32("split.no")?;
    // Only `split.no` is required in every file; gguf-split writes both.
    let stated_count = header.u32("split.count")?.unwrap_or(count);
    if stated != Some(number) || stated_count != count {
        let stated = stated.map_or_else(|| "no number".to_owned(), |n| (n + 1).to_string());
        return Err(ModelError::FileNumber { expected: number + 1, count, stated, stated_count });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_gives_all_names() {
        let first = "/models/a-b-00001-of-00003.gguf";
        let all = siblings(first);
        assert_eq!(all.len(), 3);
        assert_eq!(all[0], first);
        assert_eq!(all[2], "/models/a-b-00003-of-00003.gguf");
        assert_eq!(siblings(&all[1]), all);
    }

    #[test]
    fn other_names_stand_alone() {
        for name in [
            "model.gguf",
            "-00001-of-00002.gguf",
            "m-00003-of-00002.gguf",
            "m-00000-of-00002.gguf",
            "m-1-of-2.gguf",
            "m-0000x-of-00002.gguf",
            "m-+0001-of-00002.gguf",
            "m-00001-of-99999.gguf",
            "m-00001-of-01025.gguf",
            "m-00001-of-00002.bin",
            "m-００００１-of-00002.gguf",
        ] {
            assert_eq!(siblings(name), [name]);
        }
    }
}
