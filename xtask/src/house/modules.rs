//! Module tree of a crate: the file of each module, and which modules are tests.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use super::outline::ModuleFile;
use super::tree::SourceFile;

/// A module that has a file of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Module {
    /// The crate root that it belongs to: `lib.rs`, `main.rs` or a file in `bin/`.
    pub(super) root: usize,
    /// Below the crate root; empty for the root itself.
    pub(super) path: Vec<String>,
    pub(super) file: usize,
    pub(super) is_test: bool,
}

/// Follows `mod name;` from the crate roots in `source`. Modules whose file lies in another crate are left
/// out.
pub(super) fn find(source: &Path, files: &[SourceFile], numbers: &HashMap<PathBuf, usize>) -> Vec<Module> {
    let mut found = Vec::new();
    for (number, file) in files.iter().enumerate() {
        if is_root(source, &file.path) {
            let mut open = vec![Module { root: number, path: Vec::new(), file: number, is_test: false }];
            while let Some(module) = open.pop() {
                let file = &files[module.file];
                open.extend(file.outline.module_files.iter().filter_map(|declared| {
                    let places = candidates(&file.path, module.path.is_empty(), declared);
                    let number = places.iter().find_map(|place| numbers.get(place))?;
                    let names = declared.within.iter().chain([&declared.name]);
                    Some(Module {
                        root: module.root,
                        path: module.path.iter().chain(names).cloned().collect(),
                        file: *number,
                        is_test: module.is_test || declared.is_test,
                    })
                }));
                found.push(module);
            }
        }
    }
    found
}

fn is_root(source: &Path, path: &Path) -> bool {
    let Ok(below) = path.strip_prefix(source) else {
        return false;
    };
    below == Path::new("lib.rs")
        || below == Path::new("main.rs")
        || below.parent() == Some(Path::new("bin"))
        || (below.starts_with("bin") && below.ends_with("main.rs"))
}

/// Where the file of a declared module may lie.
fn candidates(from: &Path, is_root: bool, declared: &ModuleFile) -> Vec<PathBuf> {
    let beside = from.parent().unwrap_or(Path::new(""));
    let stem = from.file_stem().unwrap_or_default();
    let owns_folder = is_root || stem == "mod";
    let mut folder = if owns_folder { beside.to_path_buf() } else { beside.join(stem) };
    if let Some(path) = &declared.path {
        // Outside inline modules `path` is relative to the folder of the declaring file.
        let start = if declared.within.is_empty() { beside.to_path_buf() } else { folder };
        return vec![normal(&start.join(path))];
    }
    folder.extend(&declared.within);
    vec![folder.join(format!("{}.rs", declared.name)), folder.join(&declared.name).join("mod.rs")]
}

/// Resolves `..` by the path's words alone.
fn normal(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                result.pop();
            }
            Component::CurDir => {}
            part => result.push(part),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(name: &str, path: Option<&str>, within: &[&str]) -> ModuleFile {
        ModuleFile {
            name: name.to_owned(),
            path: path.map(str::to_owned),
            is_test: false,
            within: within.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn modules_lie_beside_roots_and_below_other_files() {
        let root = candidates(Path::new("src/lib.rs"), true, &declared("a", None, &[]));
        assert_eq!(root[0], Path::new("src/a.rs"));
        let below = candidates(Path::new("src/a.rs"), false, &declared("b", None, &["c"]));
        assert_eq!(below[0], Path::new("src/a/c/b.rs"));
        let given = candidates(Path::new("src/a.rs"), false, &declared("b", Some("../../x.rs"), &[]));
        assert_eq!(given, [Path::new("x.rs")]);
    }

    #[test]
    fn roots_are_libraries_and_programs() {
        let is = |path: &str| is_root(Path::new("c/src"), Path::new(path));
        assert!(
            is("c/src/lib.rs") && is("c/src/main.rs") && is("c/src/bin/x.rs") && is("c/src/bin/y/main.rs")
        );
        assert!(!is("c/src/a/lib.rs") && !is("c/src/bin/y/z.rs"));
    }
}
