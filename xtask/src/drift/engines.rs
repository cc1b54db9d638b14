//! Finds the engines for the drift check: prebuilt ones from package registries, and those installed on this
//! machine.
//!
//! npm has llama.cpp's backends for CUDA and Vulkan without a server. PyPI's xllamacpp is a server with the
//! same backend interface. Debian has both, but for a newer glibc than most machines have. So its server is
//! started by the package's own loader.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::DriftError;
use super::options::Chosen;

/// The server for npm's backends: the last release with version 2 of the backend interface.
const SERVER: &str = "2026.9.11063";
/// The server's command line, written for another release.
const ADAPTER: &str = include_str!("../../../crates/engine/src/program/xllamacpp_server.py");
const ADAPTED: &str = "2026.10.11549";
const NPM: &str = "@node-llama-cpp/linux-x64-";
const DEBIAN: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const DEBIAN_PACKAGES: [&str; 7] =
    ["libllama0", "libggml0", "libc6", "libgcc-s1", "libstdc++6", "libssl3t64", "libgomp1"];
const REGISTRY: &str = "check the package's name and version and this machine's network, and run again";

/// A program with what its loader needs.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    /// Short name, which its record has too.
    pub(super) name: String,
    pub(super) program: PathBuf,
    /// The library that has the names of the architectures.
    pub(super) library: PathBuf,
    pub(super) environment: Vec<(&'static str, PathBuf)>,
}

impl Engine {
    /// The engine, fetched now if it is not there.
    pub(super) fn get(chosen: &Chosen, place: &Path) -> Result<Self, DriftError> {
        let engine = match chosen {
            Chosen::Local(path) => local(path)?,
            Chosen::Offered { name, version } => offered(name, version.as_deref(), place)?,
        };
        let home = engine.program.parent().unwrap_or(place).to_owned();
        let mut files = vec![&engine.program, &engine.library];
        files.extend(engine.environment.iter().map(|(_, path)| path));
        let missing = files.iter().find(|path| !path.exists()).map(|path| path.display().to_string());
        match missing {
            Some(what) => Err(DriftError::Damaged { engine: engine.name, what, place: home }),
            None => Ok(engine),
        }
    }
}

fn local(path: &Path) -> Result<Engine, DriftError> {
    let path = path.canonicalize().map_err(|error| DriftError::File { path: path.to_owned(), error })?;
    let program = if path.is_dir() { path.join("llama-server") } else { path };
    let folder = program.parent().unwrap_or(Path::new("/")).to_owned();
    // `0.5.0` of `…/0.5.0/bin/llama-server`.
    let named = folder.components().rev().map(|part| part.as_os_str().to_string_lossy().into_owned());
    let name = named.into_iter().find(|name| name != "bin" && name != "build").unwrap_or_default();
    let library = folder.join("libllama.so");
    Ok(Engine {
        name: format!("local-{name}"),
        program,
        library,
        environment: vec![("LD_LIBRARY_PATH", folder)],
    })
}

fn offered(name: &str, version: Option<&str>, place: &Path) -> Result<Engine, DriftError> {
    let (registry, backend) = name.split_once('-').unwrap_or((name, ""));
    let version = match (version, registry) {
        (Some(version), _) => version.to_owned(),
        (None, "npm") => stated("npm", &["view", "--silent", &format!("{NPM}{backend}"), "version"], place)?,
        (None, _) => "newest".to_owned(),
    };
    let home = place.join(format!("{name}-{version}"));
    if !home.exists() {
        let partial = place.join(format!("{name}.partial"));
        let _ = fs::remove_dir_all(&partial);
        make(&partial)?;
        match registry {
            "npm" => npm(backend, &version, &partial)?,
            _ => debian(backend, &version, &partial)?,
        }
        fs::rename(&partial, &home).map_err(|error| DriftError::File { path: home.clone(), error })?;
    }
    let engine = |library: PathBuf, environment| Engine {
        name: name.to_owned(),
        program: home.join("llama-server"),
        library,
        environment,
    };
    Ok(match registry {
        "npm" => engine(
            home.join("python/xllamacpp/xllamacpp.abi3.so"),
            vec![
                (
                    "GGML_BACKEND_PATH",
                    home.join(format!("package/bins/linux-x64-{backend}/libggml-{backend}.so")),
                ),
                ("LD_LIBRARY_PATH", home.join("lib")),
            ],
        ),
        _ => engine(home.join("usr/lib/x86_64-linux-gnu/libllama.so.0"), Vec::new()),
    })
}

fn npm(backend: &str, version: &str, place: &Path) -> Result<(), DriftError> {
    let pack = stated("npm", &["pack", "--silent", &format!("{NPM}{backend}@{version}")], place)?;
    stated("tar", &["-xzf", pack.lines().last().unwrap_or_default()], place)?;
    stated("rm", &["-f", pack.lines().last().unwrap_or_default()], place)?;
    let server = format!("xllamacpp=={SERVER}");
    stated(
        "python3",
        &["-m", "pip", "install", "--quiet", "--no-deps", "--target", "python", &server],
        place,
    )?;
    make(&place.join("lib"))?;
    // Else two copies of ggml would be loaded: the server's own, and the one that the backend names.
    let own = place.join("lib/libggml-base.so");
    symlink("../python/xllamacpp/xllamacpp.abi3.so", &own)
        .map_err(|error| DriftError::File { path: own, error })?;
    let path = "import sys as _s, os as _o\n_s.path.insert(0, _o.path.join(_o.path.dirname(_o.path.abspath(__file__)), \"python\"))\nimport ctypes\n";
    let adapter = ADAPTER.replace(ADAPTED, SERVER).replacen("import ctypes\n", path, 1);
    script(place, &format!("#!/usr/bin/env python3\n{adapter}"))
}

/// Packages of Debian's unstable release, unpacked below a folder: nothing of the system changes.
fn debian(backend: &str, version: &str, place: &Path) -> Result<(), DriftError> {
    let (state, lists) = (place.join("apt"), place.join("apt/lists/partial"));
    make(&lists)?;
    make(&place.join("apt/archives/partial"))?;
    write(&state.join("status"), "")?;
    write(&state.join("sid.list"), &format!("deb [signed-by={KEYRING}] {DEBIAN} sid main\n"))?;
    let at = state.display();
    write(
        &state.join("apt.conf"),
        &format!(
            "Dir::State \"{at}\";\nDir::State::status \"{at}/status\";\nDir::State::lists \"{at}/lists\";\n\
             Dir::Cache \"{at}\";\nDir::Etc::sourcelist \"{at}/sid.list\";\nDir::Etc::sourceparts \"{at}/none\";\n\
             APT::Architecture \"amd64\";\nAPT::Sandbox::User \"root\";\nAcquire::Languages \"none\";\n"
        ),
    )?;
    stated("apt-get", &["update", "-qq"], &state)?;
    let tools = match version {
        "newest" => "llama.cpp-tools".to_owned(),
        version => format!("llama.cpp-tools={version}"),
    };
    let backend_package = format!("libggml0-backend-{backend}");
    let packages = [&[tools.as_str(), backend_package.as_str()], &DEBIAN_PACKAGES[..]].concat();
    stated("apt-get", &[&["download", "-qq"], &packages[..]].concat(), &state)?;
    stated("sh", &["-c", "for p in *.deb; do dpkg-deb -x $p .. || exit 1; done; rm *.deb"], &state)?;
    started_by_own_loader(backend, place)
}

/// ggml looks for backends in the folder of the running program, which is the loader.
fn started_by_own_loader(backend: &str, place: &Path) -> Result<(), DriftError> {
    let libraries = place.join("usr/lib/x86_64-linux-gnu");
    let copy = |from: &Path, to: &Path| {
        fs::copy(from, to).map(drop).map_err(|error| DriftError::File { path: from.to_owned(), error })
    };
    copy(&libraries.join("ld-linux-x86-64.so.2"), &place.join("loader"))?;
    for plugin in ["cpu-x64", backend] {
        let file = format!("libggml-{plugin}.so");
        copy(&libraries.join("ggml/backends0").join(&file), &place.join(&file))?;
    }
    script(
        place,
        "#!/bin/sh\nhome=$(dirname \"$(readlink -f \"$0\")\")\nlib=$home/usr/lib/x86_64-linux-gnu\n\
         exec \"$home/loader\" --library-path \"$LD_LIBRARY_PATH:$lib:$lib/llama\" \"$home/usr/bin/llama-server\" \"$@\"\n",
    )
}

fn script(place: &Path, text: &str) -> Result<(), DriftError> {
    let path = place.join("llama-server");
    write(&path, text)?;
    fs::set_permissions(&path, Permissions::from_mode(0o755))
        .map_err(|error| DriftError::File { path, error })
}

fn write(path: &Path, text: &str) -> Result<(), DriftError> {
    fs::write(path, text).map_err(|error| DriftError::File { path: path.to_owned(), error })
}

fn make(folder: &Path) -> Result<(), DriftError> {
    fs::create_dir_all(folder).map_err(|error| DriftError::File { path: folder.to_owned(), error })
}

/// The output of a registry's client.
fn stated(program: &str, words: &[&str], folder: &Path) -> Result<String, DriftError> {
    make(folder)?;
    let ran = Command::new(program)
        .args(words)
        .current_dir(folder)
        .env("APT_CONFIG", folder.join("apt.conf"))
        .output();
    let ran =
        ran.map_err(|error| DriftError::Start { program: program.to_owned(), error, hint: REGISTRY })?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned());
    }
    let stated = String::from_utf8_lossy(&ran.stderr);
    let stated: Vec<&str> = stated.lines().rev().take(3).collect();
    let program = format!("{program} {}", words.first().unwrap_or(&""));
    Err(DriftError::Run { program, stated: stated.join("; "), hint: REGISTRY })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_or_damaged_engine_is_reported_with_a_remedy() {
        let place = tempfile::tempdir().unwrap();
        let get = |chosen: &Chosen| Engine::get(chosen, place.path()).unwrap_err().to_string();
        let absent = get(&Chosen::Local("/nowhere/bin".into()));
        assert!(absent.contains("cannot use /nowhere/bin"), "{absent}");
        // A package that was unpacked without its backend.
        fs::create_dir_all(place.path().join("npm-cuda-1.0.0")).unwrap();
        let damaged = get(&Chosen::Offered { name: "npm-cuda", version: Some("1.0.0".to_owned()) });
        assert!(
            damaged.contains("llama-server is missing") && damaged.contains("hint: remove "),
            "{damaged}"
        );
    }

    #[test]
    fn a_client_that_fails_is_quoted_and_one_that_is_not_there_named() {
        let place = tempfile::tempdir().unwrap();
        let failed = stated("sh", &["-c", "echo E404 >&2; exit 1"], place.path()).unwrap_err().to_string();
        assert!(failed.contains("E404") && failed.contains("hint: check the package"), "{failed}");
        let absent = stated("no-such-client", &[], place.path()).unwrap_err().to_string();
        assert!(absent.contains("no-such-client"), "{absent}");
    }
}
