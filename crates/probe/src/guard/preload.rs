//! Sets the environment variables that preload guard into a child process, with its options, and switch it on
//! in Vulkan's loader.

use std::ffi::OsString;
use std::path::Path;

use plimsoll_process::Environment;
use plimsoll_wire::env as names;
use plimsoll_wire::options::GuardOptions;

use super::vulkan_layer;

const LD_PRELOAD: &str = "LD_PRELOAD";

/// Options of guard for one child.
#[derive(Clone, Copy, Debug)]
pub struct Preload<'a> {
    pub library: &'a Path,
    pub options: &'a GuardOptions,
    /// The folder of the pages.
    pub pages: &'a Path,
    /// The folder of traces, if they are wanted.
    pub trace: Option<&'a Path>,
}

/// Makes guard the first library that the loader loads into the child, and sets its options.
pub fn preload(environment: &mut Environment, preload: &Preload<'_>) {
    // The first library that defines a symbol wins, so guard stands before the user's own preloads
    // (ld.so(8)).
    let mut list = OsString::from(preload.library);
    if let Some(others) = environment.get(LD_PRELOAD).filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    environment.set(LD_PRELOAD, list);
    if let Err(error) = vulkan_layer::switch_on(environment, preload.library, preload.pages) {
        tracing::warn!(
            "Vulkan programs run without guard, because the manifest of guard's layer cannot be written: \
                {error}"
        );
    }
    environment.set(names::GUARD, preload.options.to_string());
    environment.set(names::GUARD_PAGES, preload.pages);
    match preload.trace {
        Some(path) => environment.set(names::GUARD_TRACE, path),
        // A daemon that is traced itself must not hand its own trace folder on to its children.
        None => environment.remove(names::GUARD_TRACE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guard_comes_first_and_what_was_preloaded_stays() {
        let options = GuardOptions::read("budget=7 reuse").unwrap();
        let pages = tempfile::tempdir().unwrap();
        let guard = Preload {
            library: Path::new("/lib/guard.so"),
            options: &options,
            pages: pages.path(),
            trace: None,
        };
        let mut environment: Environment = [
            ("LD_PRELOAD".into(), "/lib/jemalloc.so /lib/b.so".into()),
            (names::GUARD_TRACE.into(), "somebody else's".into()),
        ]
        .into_iter()
        .collect();
        preload(&mut environment, &guard);
        let stated = |name| environment.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(stated("LD_PRELOAD"), Some("/lib/guard.so:/lib/jemalloc.so /lib/b.so"));
        assert_eq!(stated(names::GUARD), Some("budget=7 reuse"));
        assert_eq!(stated(names::GUARD_PAGES), pages.path().to_str());
        assert_eq!(stated(names::GUARD_TRACE), None);
    }
}
