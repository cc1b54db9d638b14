//! Process tests of the program for Windows: names, paths, output, models on a server, and a diagnosis.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use fake_hub::{FakeHub, HostedFile};
use plimsoll_specimens::{Changes, shape, write};
use serde_json::Value;

use super::Toolchain;
use crate::test::Outcome;

const CARD: &str = "--card=name=RTX3060,total=12GiB,free=11GiB,cc=8.6";
/// The longest path that a program of Windows may open without asking for more (`MAX_PATH`).
const USUAL_PATH: usize = 260;
const REPOSITORY: &str = "user/model-GGUF";

/// The program, and an empty folder with one model.
struct Trial<'a> {
    toolchain: &'a Toolchain,
    program: &'a Path,
    folder: PathBuf,
}

type Test<'a> = fn(&Trial<'a>) -> io::Result<bool>;

fn tests<'a>() -> [(&'static str, Test<'a>); 10] {
    [
        ("a name of any script is read", |trial| trial.plans_at("modèle 日本 🦀/l8 ü.gguf")),
        ("a name of any script is printed", Trial::names_a_missing_file),
        ("a path longer than 260 characters is read", Trial::plans_at_a_long_path),
        ("the name of a device is refused", Trial::refuses_a_device),
        ("a pipe gets no colour", Trial::prints_plain_text),
        ("a model on a server is planned as its file", Trial::plans_from_a_hub),
        ("quantisations of a repository are listed", Trial::lists_quantisations),
        ("a configuration of llama-swap is imported", Trial::imports),
        ("the report of Windows 7 is diagnosed as the pool's growth", Trial::diagnoses_the_pool),
        ("what is absent is said with the verbs that work", Trial::names_what_is_absent),
    ]
}

/// Runs each test in a folder of its own, and names those that fail.
pub(super) fn run(toolchain: &Toolchain, program: &Path) -> io::Result<Outcome> {
    super::parts::judged(tests(), |test| {
        let folder = toolchain.work("trial");
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        write("l8", &folder.join("l8.gguf"), &Changes::default()).map_err(io::Error::other)?;
        test(&Trial { toolchain, program, folder })
    })
}

impl Trial<'_> {
    fn command(&self) -> Command {
        let mut command = self.toolchain.wine();
        command.arg(self.program).current_dir(&self.folder).stdin(Stdio::null());
        command.env("USERPROFILE", format!("Z:{}", self.folder.display()));
        command
    }

    fn output(&self, words: &[&str]) -> io::Result<Output> {
        self.command().args(words).output()
    }

    /// The plan of a model, but for the reasons, which name the file.
    fn plan(&self, model: &str) -> io::Result<Option<Value>> {
        let output = self.output(&["plan", "--json", CARD, model, "-c", "8192"])?;
        let plan: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        Ok(plan.map(|plan| plan["cards"].clone()))
    }

    /// Moves the model there, plans it, and compares with its plan before.
    fn plans_at(&self, path: &str) -> io::Result<bool> {
        let before = self.plan("l8.gguf")?;
        let place = self.folder.join(path);
        fs::create_dir_all(place.parent().unwrap_or(&self.folder))?;
        fs::rename(self.folder.join("l8.gguf"), &place)?;
        Ok(before.is_some() && before == self.plan(path)?)
    }

    fn names_a_missing_file(&self) -> io::Result<bool> {
        const NAME: &str = "日本 ü.gguf";
        let output = self.output(&["plan", CARD, NAME])?;
        Ok(output.status.code() == Some(2) && String::from_utf8_lossy(&output.stderr).contains(NAME))
    }

    fn plans_at_a_long_path(&self) -> io::Result<bool> {
        let folder = format!("{}/", "long".repeat(25));
        let path = format!("{}l8.gguf", folder.repeat(3));
        Ok(path.len() > USUAL_PATH && self.plans_at(&path)?)
    }

    fn refuses_a_device(&self) -> io::Result<bool> {
        let output = self.output(&["plan", CARD, "NUL.gguf"])?;
        let stated = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(output.status.code() == Some(2) && stated.contains("it is the name of a device"))
    }

    fn prints_plain_text(&self) -> io::Result<bool> {
        let is_plain = |output: Output| !output.stdout.is_empty() && !output.stdout.contains(&0x1b);
        Ok(is_plain(self.output(&["plan", CARD, "l8.gguf"])?) && is_plain(self.output(&["--help"])?))
    }

    fn plans_from_a_hub(&self) -> io::Result<bool> {
        let hub = hub()?;
        let words = ["plan", "--json", CARD, "-hf", &format!("{REPOSITORY}:Q4_K_M"), "-c", "8192"];
        let output = self.command().args(words).env("HF_ENDPOINT", &hub.address).output()?;
        let planned: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        let planned = planned.map(|plan| plan["cards"].clone());
        Ok(planned.is_some() && planned == self.plan("l8.gguf")? && !hub.requests().is_empty())
    }

    fn lists_quantisations(&self) -> io::Result<bool> {
        let hub = hub()?;
        let words = ["plan", CARD, "-hf", REPOSITORY, "--quants"];
        let output = self.command().args(words).env("HF_ENDPOINT", &hub.address).output()?;
        let stated = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(["Q4_K_M", "Q8_0"].iter().all(|name| stated.contains(name)))
    }

    fn imports(&self) -> io::Result<bool> {
        let text = "models:\n  small:\n    cmd: llama-server -m l8.gguf -c 4096 --port ${PORT}\n";
        fs::write(self.folder.join("swap.yaml"), text)?;
        let output = self.output(&["import", "swap.yaml"])?;
        let written = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(output.status.success() && written.contains("[models.small]") && written.contains("l8.gguf"))
    }

    fn diagnoses_the_pool(&self) -> io::Result<bool> {
        let log = self.toolchain.root.join("data/logs/pool_growth.windows-7.llama.log");
        let output = self.command().args(["doctor", "--json"]).arg(&log).output()?;
        let verdict: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let has_remedy = verdict["hints"].to_string().contains("--pool ours");
        Ok(verdict["cause"] == "pool_growth" && has_remedy)
    }

    fn names_what_is_absent(&self) -> io::Result<bool> {
        let output = self.output(&["serve"])?;
        let stated = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(output.status.code() == Some(2) && stated.contains("`plimsoll serve` does not work on Windows"))
    }
}

/// A hub with one model in two quantisations.
fn hub() -> io::Result<FakeHub> {
    let file = |name: &str| {
        let shape = shape(name).ok_or_else(|| io::Error::other(format!("no model {name}")))?;
        shape.files(1).pop().map(|draft| HostedFile::of(&draft)).ok_or_else(|| io::Error::other("no file"))
    };
    let files =
        vec![(REPOSITORY, "m-Q4_K_M.gguf", file("l8")?), (REPOSITORY, "m-Q8_0.gguf", file("qwen3-4b")?)];
    FakeHub::start(files)
}
