//! Installs Python clients for the tests in virtual environments below the target folder, each once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use serde_json::Value;

/// Packages that can live together, at the releases that the tests are written against.
pub(crate) struct Environment {
    folder: &'static str,
    packages: &'static [&'static str],
    /// The script beside this file that installs what the packages need, if that is not all that they name.
    completed_by: Option<&'static str>,
    created: Mutex<bool>,
}

/// The environment of CI.
static CLIENTS: Environment =
    Environment::new("openai-venv", &["openai==3.54.0", "anthropic==2.12.0", "ollama==0.6.3"]);
pub(crate) static LANGCHAIN: Environment =
    Environment::new("langchain-venv", &["langchain-openai==1.7.3", "llm==0.36"]);
pub(crate) static LITELLM: Environment = Environment::new("litellm-venv", &["litellm==1.106.2"]);
pub(crate) static AIDER: Environment = Environment::new("aider-venv", &["aider-chat==0.86.2"]);
pub(crate) static OPEN_WEBUI: Environment =
    Environment::new("open-webui-venv", &["open-webui==0.12.4"]).completed_by("open_webui.py");

/// llama.cpp of April 2026 with ROCm 6 for gfx1100.
pub(crate) static CYLLAMA_ROCM: Environment =
    Environment::new("cyllama-rocm-venv", &["cyllama-rocm==0.2.12"]);

/// It sends requests by a description of an API.
pub(crate) static SCHEMATHESIS: Environment =
    Environment::new("schemathesis-venv", &["schemathesis==4.32.5"]);

/// The Python of CI's environment.
pub(crate) fn python() -> PathBuf {
    CLIENTS.python()
}

/// A script beside this file.
pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real_engine").join(name)
}

/// Runs a client and reads the JSON in its last line; libraries print notices before it.
pub(crate) fn output(client: &mut Command) -> Value {
    let output = client.output().unwrap();
    let stated = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{client:?}: {stated}");
    let printed = String::from_utf8_lossy(&output.stdout);
    let last = printed.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {printed}\n{stated}"))
}

impl Environment {
    const fn new(folder: &'static str, packages: &'static [&'static str]) -> Self {
        Self { folder, packages, completed_by: None, created: Mutex::new(false) }
    }

    const fn completed_by(self, script: &'static str) -> Self {
        Self { completed_by: Some(script), ..self }
    }

    pub(crate) fn python(&self) -> PathBuf {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let place = target.join(self.folder);
        let python = place.join("bin/python");
        let mut created = self.created.lock().unwrap();
        if !*created && !self.works(&python) {
            self.install(&place);
        }
        *created = true;
        python
    }

    fn works(&self, python: &Path) -> bool {
        let check = "import sys; from importlib.metadata import version\n\
            assert all(version(name) == wanted for name, wanted in (given.split('==') for given in sys.argv[1:]))";
        let run = Command::new(python).args(["-I", "-c", check]).args(self.packages).output();
        run.is_ok_and(|output| output.status.success())
    }

    /// Made beside its place and moved there, so that what is there is whole.
    fn install(&self, place: &Path) {
        let partial = place.with_extension(std::process::id().to_string());
        run(Command::new("python3").args(["-m", "venv"]).arg(&partial));
        let python = partial.join("bin/python");
        let flags = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        let alone = self.completed_by.map(|_| "--no-deps");
        run(Command::new(&python).args(flags).args(alone).args(self.packages));
        if let Some(script) = self.completed_by {
            run(Command::new(&python).arg(self::script(script)).arg("install"));
        }
        let _ = fs::remove_dir_all(place);
        fs::rename(&partial, place).unwrap();
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let stated = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stated}");
}
