//! Measures the time of a plan by formulas: of the whole `plimsoll plan` process, and of the planning alone
//! inside this process.
//!
//! The programs alternate, in random order within a round, so that other processes disturb all of them alike.
//! To compare two builds, name both. Models are synthetic headers followed by holes; they are read once
//! before the measurement, so that they are in the page cache.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use plimsoll_base::Card;
use plimsoll_flags::Options;
use plimsoll_model::gguf::Header;
use plimsoll_model::{Dialect, Model, split};
use plimsoll_plan::Estimate;
use plimsoll_specimens::{Changes, WriteError};

use crate::numbers::{Shuffle, microseconds, percentile};
use crate::options::Plan;

const CARD: &str = "name=NVIDIA H200,total=143771MiB,free=140000MiB,cc=9.0";
/// No header of a synthetic model is longer.
const LONGEST_HEADER: u64 = 16 << 20;
/// Files of a set, for the models that are too large for one.
const SHARDS: u16 = 6;

#[derive(Debug, thiserror::Error)]
pub(crate) enum PlansError {
    #[error("cannot make a folder for models: {0}")]
    Folder(io::Error),
    #[error(transparent)]
    Model(#[from] WriteError),
    #[error("cannot run {}: {source}", program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("{} ended with {status} over {subject}", program.display())]
    Failed { program: PathBuf, subject: String, status: ExitStatus },
    #[error("cannot plan {subject}: {why}")]
    Plan { subject: String, why: String },
    #[error("cannot write the report: {0}")]
    Print(io::Error),
}

/// A model on so many cards.
struct Subject {
    name: String,
    cards: Vec<Card>,
    arguments: Vec<String>,
    file: PathBuf,
}

pub(crate) fn run(options: &Plan) -> Result<(), PlansError> {
    let folder = tempfile::tempdir().map_err(PlansError::Folder)?;
    let mut out = io::stdout();
    let head =
        "| plan | program | whole process p50 | p95 | in process p50 | p95 |\n|---|---|---|---|---|---|";
    writeln!(out, "{head}").map_err(PlansError::Print)?;
    for shape in &options.shapes {
        let (shape, cards) = shape.split_once('*').unwrap_or((shape, "1"));
        let cards = cards.parse().map_err(|error| PlansError::Plan {
            subject: shape.to_owned(),
            why: format!("`{cards}` cards: {error}"),
        })?;
        let subject = Subject::write(shape, cards, folder.path())?;
        let within = inside(&subject, options.runs)?;
        for (program, whole) in options.plimsoll.iter().zip(outside(&subject, options)?) {
            let line = format!(
                "| {} | {} | {} | {} |",
                subject.name,
                program.display(),
                cells(whole),
                cells(within.clone())
            );
            writeln!(out, "{line}").map_err(PlansError::Print)?;
        }
    }
    Ok(())
}

fn cells(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let of = |percent| percentile(&times, percent).map_or(0.0, microseconds) / 1e3;
    format!("{:.2} ms | {:.2} ms", of(50), of(95))
}

impl Subject {
    fn write(shape: &str, cards: usize, folder: &Path) -> Result<Self, PlansError> {
        let name = format!("{shape} on {cards}");
        let changes = Changes { shards: if shape == "kimi-k2" { SHARDS } else { 1 }, ..Changes::default() };
        let out = folder.join(format!("{shape}.gguf"));
        let files = plimsoll_specimens::write(shape, &out, &changes)?;
        let file = files.into_iter().next().map_or(out, |first| first.path);
        let card = CARD
            .parse::<Card>()
            .map_err(|error| PlansError::Plan { subject: name.clone(), why: error.to_string() })?;
        let model = file.to_string_lossy().into_owned();
        let arguments = ["-m", &model, "-c", "32768"].map(str::to_owned).to_vec();
        Ok(Self { name, cards: vec![card; cards], arguments, file })
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.args(["plan", "--json"]).stdout(Stdio::null());
        for _ in &self.cards {
            command.args(["--card", CARD]);
        }
        command.arg("--").args(&self.arguments);
        command
    }
}

/// A plan ends with 1 where the model does not fit.
fn has_planned(status: ExitStatus) -> bool {
    matches!(status.code(), Some(0 | 1))
}

fn finish(
    command: &mut Command,
    program: &Path,
    subject: &str,
    fine: impl Fn(ExitStatus) -> bool,
) -> Result<(), PlansError> {
    let status =
        command.status().map_err(|source| PlansError::Start { program: program.to_owned(), source })?;
    if fine(status) {
        Ok(())
    } else {
        Err(PlansError::Failed { program: program.to_owned(), subject: subject.to_owned(), status })
    }
}

/// Of each program, from its start to its end.
fn outside(subject: &Subject, options: &Plan) -> Result<Vec<Vec<Duration>>, PlansError> {
    let programs = &options.plimsoll;
    let mut times = vec![Vec::new(); programs.len()];
    let mut shuffle = Shuffle::new();
    for _ in 0..options.runs {
        for at in shuffle.order(programs.len()) {
            let start = Instant::now();
            finish(&mut subject.command(&programs[at]), &programs[at], &subject.name, has_planned)?;
            times[at].push(start.elapsed());
        }
    }
    Ok(times)
}

/// Of the planning alone, by the formulas that are built into this program: no file, no header, no JSON.
fn inside(subject: &Subject, runs: usize) -> Result<Vec<Duration>, PlansError> {
    let wrong = |why: String| PlansError::Plan { subject: subject.name.clone(), why };
    let model = read(&subject.file).map_err(wrong)?;
    let options = Options::from_argv(&subject.arguments).map_err(|error| wrong(error.to_string()))?;
    let estimate = Estimate::new(model.into());
    let params = options.params(estimate.program).map_err(|error| wrong(error.to_string()))?;
    let request = estimate.request(&params, &subject.cards);
    let once = |_| {
        let start = Instant::now();
        let plan = plimsoll_planner::plan(&request).map_err(|error| wrong(error.to_string()))?;
        std::hint::black_box(plan);
        Ok(start.elapsed())
    };
    (0..runs).map(once).collect()
}

fn read(path: &Path) -> Result<Model, String> {
    let mut heads = Vec::new();
    for name in split::siblings(&path.to_string_lossy()) {
        let mut bytes = Vec::new();
        let file = File::open(&name).map_err(|error| error.to_string())?;
        let length = file.metadata().map_err(|error| error.to_string())?.len();
        let mut head = file.take(LONGEST_HEADER);
        head.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        heads.push((bytes, length));
    }
    let headers = heads.iter().map(|(bytes, length)| Header::read(bytes, *length, Dialect::Ggml));
    let headers: Vec<Header<'_>> = headers.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    Model::from_headers(&headers).map_err(|error| error.to_string())
}
