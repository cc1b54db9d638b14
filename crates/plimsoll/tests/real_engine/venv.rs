//! OpenAI's Python library in a virtual environment below the target folder, installed once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The release that the tests are written against.
const OPENAI: &str = "openai==3.54.0";

/// The environment's Python.
pub(crate) fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let place = target.join("openai-venv");
        let python = place.join("bin/python");
        if !works(&python) {
            install(&place);
        }
        python
    })
}

fn works(python: &Path) -> bool {
    let version = OPENAI.split("==").last().unwrap();
    let check = format!("import openai; assert openai.__version__ == '{version}'");
    let run = Command::new(python).args(["-I", "-c", &check]).output();
    run.is_ok_and(|output| output.status.success())
}

/// Made beside its place and moved there, so that what is there is whole.
fn install(place: &Path) {
    let partial = place.with_extension(std::process::id().to_string());
    run(Command::new("python3").args(["-m", "venv"]).arg(&partial));
    let flags = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", OPENAI];
    run(Command::new(partial.join("bin/python")).args(flags));
    let _ = fs::remove_dir_all(place);
    fs::rename(&partial, place).unwrap();
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}
