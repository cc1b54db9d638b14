//! Switches guard on as a layer of Vulkan's loader in a child process: a manifest, and the variables that
//! name it.
//!
//! A program without Vulkan reads none of them.

use std::env::join_paths;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_process::Environment;
use plimsoll_wire::env as names;

/// The manifest's name in the folder of the pages.
const MANIFEST: &str = "vulkan_layer.json";
/// Where the loader looks for manifests below each folder (`LoaderLayerInterface.md`).
const BELOW: &str = "vulkan/explicit_layer.d";

/// Writes the manifest of this library into `folder`, and sets the variables.
///
/// DECISION: VK_LAYER_PATH, which every loader knows, with the folders that it stands for. VK_ADD_LAYER_PATH
/// came with 1.3.234, and a loader that knows it ignores it beside the other.
pub(super) fn switch_on(environment: &mut Environment, library: &Path, folder: &Path) -> io::Result<()> {
    let path = folder.join(MANIFEST);
    // The text is the same for every child of a folder. Renamed into its place, since one may be reading it.
    if !path.exists() {
        let file = tempfile::NamedTempFile::new_in(folder)?;
        std::fs::write(file.path(), manifest(library))?;
        file.persist(&path)?;
    }
    let folders = std::iter::once(folder.to_owned()).chain(searched(environment));
    // A folder with a colon in its name cannot be listed, and then nothing is changed.
    let folders = join_paths(folders).map_err(io::Error::other)?;
    environment.set(names::VK_LAYER_PATH, folders);
    let mut layers = OsString::from(names::GUARD_LAYER);
    if let Some(others) = environment.get(names::VK_INSTANCE_LAYERS).filter(|others| !others.is_empty()) {
        layers.push(":");
        layers.push(others);
    }
    environment.set(names::VK_INSTANCE_LAYERS, layers);
    Ok(())
}

fn manifest(library: &Path) -> String {
    const NEGOTIATE: &str = "vkNegotiateLoaderLayerInterfaceVersion";
    let manifest = serde_json::json!({
        "file_format_version": "1.1.2",
        "layer": {
            "name": names::GUARD_LAYER,
            "type": "GLOBAL",
            "library_path": library,
            // A loader refuses a layer of a lower version than the program's, and this one has no functions
            // of its own.
            "api_version": "1.4.999",
            "implementation_version": "1",
            "description": "Plimsoll's guard: counts and limits GPU memory",
            "functions": { NEGOTIATE: NEGOTIATE },
        },
    });
    manifest.to_string()
}

/// Folders in which the loader would look for layers that the program asks for.
fn searched(environment: &Environment) -> Vec<PathBuf> {
    let listed = |name: &str| environment.get(name).map(std::env::split_paths).into_iter().flatten();
    let own = |name: &str| listed(name).filter(|path| !path.as_os_str().is_empty()).collect::<Vec<_>>();
    let given = own(names::VK_LAYER_PATH);
    if !given.is_empty() {
        return given;
    }
    let home = |below: &str| own("HOME").first().map(|home| home.join(below));
    let or = |given: Vec<PathBuf>, usual: Vec<PathBuf>| if given.is_empty() { usual } else { given };
    let usual = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
    let roots = [
        or(own("XDG_CONFIG_HOME"), home(".config").into_iter().collect()),
        or(own("XDG_CONFIG_DIRS"), usual(&["/etc/xdg"])),
        usual(&["/usr/local/etc", "/etc"]),
        or(own("XDG_DATA_HOME"), home(".local/share").into_iter().collect()),
        or(own("XDG_DATA_DIRS"), usual(&["/usr/local/share", "/usr/share"])),
    ];
    let standard = roots.into_iter().flatten().map(|root| root.join(BELOW));
    own(names::VK_ADD_LAYER_PATH).into_iter().chain(standard).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switched(variables: &[(&str, &str)]) -> (Vec<PathBuf>, String, serde_json::Value) {
        let folder = tempfile::tempdir().unwrap();
        let mut environment: Environment =
            variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        for _ in 0..2 {
            let mut again = environment.clone();
            switch_on(&mut again, Path::new("/lib/guard.so"), folder.path()).unwrap();
        }
        switch_on(&mut environment, Path::new("/lib/guard.so"), folder.path()).unwrap();
        let folders: Vec<PathBuf> =
            std::env::split_paths(environment.get(names::VK_LAYER_PATH).unwrap()).collect();
        assert_eq!(folders[0], folder.path());
        let text = std::fs::read_to_string(folder.path().join(MANIFEST)).unwrap();
        let layers = environment.get(names::VK_INSTANCE_LAYERS).unwrap().to_str().unwrap().to_owned();
        (folders[1..].to_vec(), layers, serde_json::from_str(&text).unwrap())
    }

    fn paths(all: &[&str]) -> Vec<PathBuf> {
        all.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn layers_that_the_program_asks_for_are_still_found() {
        let (folders, layers, manifest) = switched(&[("HOME", "/home/me"), ("XDG_DATA_DIRS", "/a:/b")]);
        let expected = [
            "/home/me/.config/vulkan/explicit_layer.d",
            "/etc/xdg/vulkan/explicit_layer.d",
            "/usr/local/etc/vulkan/explicit_layer.d",
            "/etc/vulkan/explicit_layer.d",
            "/home/me/.local/share/vulkan/explicit_layer.d",
            "/a/vulkan/explicit_layer.d",
            "/b/vulkan/explicit_layer.d",
        ];
        assert_eq!((folders, layers.as_str()), (paths(&expected), "VK_LAYER_PLIMSOLL_guard"));
        assert_eq!(manifest["layer"]["library_path"], "/lib/guard.so");
    }

    #[test]
    fn a_users_own_layers_and_folders_stay() {
        let own = [("VK_INSTANCE_LAYERS", "VK_LAYER_A:VK_LAYER_B"), ("VK_LAYER_PATH", "/mine:/yours")];
        let (folders, layers, _) = switched(&own);
        assert_eq!(folders, paths(&["/mine", "/yours"]));
        assert_eq!(layers, "VK_LAYER_PLIMSOLL_guard:VK_LAYER_A:VK_LAYER_B");
        let (folders, _, _) = switched(&[("VK_ADD_LAYER_PATH", "/more"), ("HOME", "")]);
        assert_eq!(folders[..2], paths(&["/more", "/etc/xdg/vulkan/explicit_layer.d"]));
    }
}
