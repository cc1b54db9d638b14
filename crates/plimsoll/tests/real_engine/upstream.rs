//! Runs llama.cpp's own server tests, directly and through `plimsoll serve`, and compares the results.
//!
//! PyPI's llama-cpp-python contains llama.cpp 0.5.0 with its tests. They run with synthetic models, whose
//! output is not judged. `upstream/differs.txt` lists each test that passes directly but fails through
//! `serve`, with the reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fake_hub::{FakeHub, HostedFile};
use tempfile::TempDir;

use super::cuda::{fetched, run};
use crate::child::program;

/// The release that carries llama.cpp 0.5.0.
const SOURCE: &str = "llama-cpp-python==0.3.36";
/// What the tests import, by the names of their `requirements.txt`.
const PACKAGES: [&str; 7] = ["pytest", "pytest-xdist", "filelock", "numpy", "openai", "requests", "wget"];
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real_engine/upstream");
/// The repository that the tests of downloads fetch.
const DOWNLOADED: &str = "ggml-org/test-model-router-download";
/// Tests that pass bare and not through us: name, and the reason behind `|`.
const DIFFERS: &str = include_str!("upstream/differs.txt");
/// Tests that take seconds.
const QUICK: [&str; 3] = [
    "unit/test_basic.py::test_server_props",
    "unit/test_basic.py::test_server_slots",
    "unit/test_tokenize.py",
];

/// llama.cpp's source and a Python that runs its tests.
fn source() -> PathBuf {
    fetched("llama-cpp-tests-0.3.36", |place| {
        fs::create_dir_all(place).unwrap();
        run(Command::new("python3").args(["-m", "venv"]).arg(place.join("venv")));
        let pip = || {
            let mut pip = Command::new(place.join("venv/bin/python"));
            pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]).current_dir(place);
            pip
        };
        run(pip().arg("install").args(PACKAGES));
        run(pip().args(["download", "--no-deps", "--no-binary", "llama-cpp-python", SOURCE]));
        run(Command::new("sh")
            .args(["-c", "tar -xzf llama_cpp_python-*.tar.gz && rm llama_cpp_python-*.tar.gz && mv llama_cpp_python-* source"])
            .current_dir(place));
    })
}

/// A tree with the tests and their models.
struct UpstreamTests {
    folder: TempDir,
    source: PathBuf,
    /// The hub of downloads, with the model that the tests fetch.
    hub: FakeHub,
}

impl UpstreamTests {
    fn new() -> Self {
        let (source, folder) = (source(), tempfile::tempdir().unwrap());
        let models = folder.path().join("models");
        fs::create_dir(&models).unwrap();
        for shape in ["tiny", "tiny-embed"] {
            let changes = plimsoll_specimens::Changes { context: Some(2048), ..Default::default() };
            plimsoll_specimens::write(shape, &models.join(format!("{shape}.gguf")), &changes).unwrap();
        }
        let tiny = HostedFile::whole(&fs::read(models.join("tiny.gguf")).unwrap());
        let hub = FakeHub::start(vec![(DOWNLOADED, "model-F16.gguf", tiny)]).unwrap();
        let tree = source.join("source/vendor/llama.cpp");
        run(Command::new("python3").arg(Path::new(TOOLS).join("prepare.py")).args([
            &tree,
            &folder.path().join("tree"),
            &models,
        ]));
        Self { folder, source, hub }
    }

    /// Runs test files against `server`, each on a port of its own; returns the names of those that pass.
    fn passing(&self, server: &Path, port: u16, files: &[&str]) -> BTreeSet<String> {
        let report = self.folder.path().join(format!("{port}.xml"));
        let output = Command::new(self.source.join("venv/bin/python3"))
            .args(["-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"])
            .arg(format!("--junitxml={}", report.display()))
            .args(files)
            .current_dir(self.folder.path().join("tree/tools/server/tests"))
            .env("LLAMA_SERVER_BIN_PATH", server)
            .env("PORT", port.to_string())
            .env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll"))
            .env("PLIMSOLL_TEST_ENGINE", engine())
            .env("TMPDIR", self.folder.path())
            .env("LLAMA_CACHE", self.folder.path())
            .env("MODEL_ENDPOINT", &self.hub.address)
            .output()
            .unwrap();
        let report = fs::read_to_string(&report);
        let report = report.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stdout)));
        passed(&report)
    }
}

/// The engine that the tests run on: that of the environment, or the CPU engine that `plimsoll engine
/// install` brings.
fn engine() -> PathBuf {
    std::env::var_os("PLIMSOLL_TEST_ENGINE").map_or_else(|| program().to_owned(), PathBuf::from)
}

/// Names of the tests that pass, from a report in JUnit's format.
fn passed(report: &str) -> BTreeSet<String> {
    let cases = report.split("<testcase ").skip(1);
    let attribute = |case: &str, name: &str| {
        let (_, rest) =
            case.split_once(&format!(" {name}=\"")).or_else(|| case.split_once(&format!("{name}=\"")))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let passing = cases.filter(|case| {
        let whole = case.split("</testcase>").next().unwrap_or(case);
        !["<failure", "<error", "<skipped"].iter().any(|word| whole.contains(word))
    });
    let name = |case: &str| {
        let file = attribute(case, "classname")?;
        Some(format!("{}::{}", file.rsplit('.').next()?, attribute(case, "name")?))
    };
    passing.filter_map(name).collect()
}

/// Compares both runs with the list; `files` are those that ran.
#[allow(clippy::print_stderr, reason = "the figures are the result of the comparison")]
fn compare(files: &[&str], port: u16) {
    let tests = UpstreamTests::new();
    let bare = tests.passing(&engine(), port, files);
    let ours = tests.passing(&Path::new(TOOLS).join("stand_in.py"), port + 1, files);
    let named: BTreeSet<String> =
        DIFFERS.lines().filter_map(|line| line.split_once(" | ")).map(|(name, _)| name.to_owned()).collect();
    let lost: Vec<_> = bare.difference(&ours).filter(|name| !named.contains(*name)).collect();
    let both = bare.intersection(&ours).count();
    assert!(lost.is_empty(), "{both} of {} pass through us, without a reason not: {lost:#?}", bare.len());
    assert!(both > 0, "nothing passes bare");
    let won: Vec<_> = named.intersection(&ours).collect();
    assert!(won.is_empty(), "these pass and are named as different: {won:#?}");
    eprintln!("{both} of the {} tests that pass bare pass through plimsoll serve", bare.len());
}

#[test]
fn each_test_that_differs_has_a_reason() {
    let mut seen = BTreeSet::new();
    for line in DIFFERS.lines().filter(|line| !line.starts_with('#')) {
        let (name, reason) = line.split_once(" | ").unwrap_or_else(|| panic!("no reason: {line}"));
        assert!(name.starts_with("test_") && name.contains("::") && reason.len() > 20, "{line}");
        assert!(seen.insert(name), "{name} twice");
    }
}

#[test]
fn the_quick_ones_of_llama_cpps_own_tests_pass_as_bare() {
    compare(&QUICK, 18_430);
}

#[test]
fn long_llama_cpps_own_tests_pass_as_bare_but_for_those_with_a_reason() {
    compare(&["unit"], 18_440);
}
