//! Compares planned and measured memory of a running process, for `plimsoll plan --check`.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_base::{Card, CardKind};
use plimsoll_cards::{KernelCard, Reading};
use plimsoll_flags::table::FlagClass;
use plimsoll_flags::{FlagOrigin, FlagValue as SettingValue, ModelParams, Options, Parallel, ProgramKind};
use plimsoll_planner::{CardPlan, EngineBuild, Plan};
use serde_json::Value;

use super::super::exact::once;
use super::super::{Arguments, by_formulas};
use crate::check::{CARD_MARGIN, Checked, HOST_MARGIN, ReportedFigure, Row, margin};
use crate::report::ErrorReport;

/// Plans the program with the flags it was started with, and measures what it holds.
pub(super) fn checked(arguments: &Arguments, pid: u32) -> Result<Checked, ErrorReport> {
    let started = Started::read(pid)?;
    // Flags after `--` win: a wrapper may hide some from the command line, and the user can add them.
    let options = Options::from_argv(&arguments.flags)?.merged_over(&started.options()?);
    let program = started.program().unwrap_or_else(|| arguments.program());
    let options = started.reachable(&options);
    let params = options.params(program)?;
    let reading = plimsoll_cards::read();
    let family = plimsoll_process::reading::tree(pid);
    let cards = arguments.described_or(|| started.cards(&reading, &family))?;
    let plan = match &arguments.exact {
        Some(named) => {
            let named = named.clone().or_else(|| started.engine());
            once(arguments, named.as_deref(), (&options, program), &cards)?
        }
        None => by_formulas(&options, arguments.engine(), program, &cards)?,
    };
    Ok(Checked {
        model: plan.model.clone(),
        pid,
        cards: rows(arguments, &plan, &cards, &reading, &family),
        stated: planned(&plan, &params),
    })
}

/// Plans by formula, with the flags of a running process, on the cards that it sees and as if it were not
/// there.
pub(in crate::command) fn again(pid: u32, engine: EngineBuild) -> Result<Plan, ErrorReport> {
    let started = Started::read(pid)?;
    let options = started.reachable(&started.options()?);
    let program = started.program().unwrap_or(ProgramKind::LlamaServer);
    let cards = started.cards(&plimsoll_cards::read(), &plimsoll_process::reading::tree(pid));
    by_formulas(&options, engine, program, &cards)
}

fn rows(arguments: &Arguments, plan: &Plan, cards: &[Card], reading: &Reading, family: &[u32]) -> Vec<Row> {
    let row = |(card, planned): (&Card, &CardPlan)| {
        let (measured, kind) = if card.kind == CardKind::Host {
            // The process itself, not its children: pages shared after fork would count twice in a sum.
            let own = family.first().and_then(|&pid| plimsoll_process::resident(pid));
            (own, HOST_MARGIN)
        } else {
            (reading.used_by(family, &card.id), CARD_MARGIN)
        };
        let margin = margin(arguments.margin, kind, planned.peak);
        let of_host = card.kind == CardKind::Host;
        Row { of_host, ..Row::new(card.id.clone(), planned, measured, margin) }
    };
    cards.iter().zip(&plan.cards).map(row).collect()
}

/// Planned figures that an engine reports too.
fn planned(plan: &Plan, params: &ModelParams) -> Vec<ReportedFigure> {
    let stated = |name, planned| ReportedFigure { name, planned, engine: planned };
    let mut all = vec![stated("context", plan.context)];
    if let Parallel::Count(slots) = params.parallel {
        all.push(stated("slots", u64::from(slots)));
    }
    all
}

/// Fills in the engine's own figures from `/props`.
pub(super) fn compare(stated: &mut Vec<ReportedFigure>, props: &Value) {
    let slots = props["total_slots"].as_u64();
    let each = props["default_generation_settings"]["n_ctx"].as_u64();
    let planned = |name: &str, stated: &[ReportedFigure]| {
        stated.iter().find(|stated| stated.name == name).map(|stated| stated.planned)
    };
    // A slot reports the whole of a unified cache (`--kv-unified`), or its part of a divided one.
    let whole = planned("context", stated);
    let context = each.map(|each| match (slots, whole) {
        (Some(slots), Some(whole)) if each.saturating_mul(slots) == whole => whole,
        _ => each,
    });
    stated.retain_mut(|stated| {
        let engine = if stated.name == "context" { context } else { slots };
        stated.engine = engine.unwrap_or(stated.engine);
        engine.is_some()
    });
}

/// Command line and environment of a running process.
struct Started {
    pid: u32,
    words: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Started {
    fn read(pid: u32) -> Result<Self, ErrorReport> {
        if !Path::new("/proc").join(pid.to_string()).exists() {
            return Err(ErrorReport::new(format!("there is no process {pid}")));
        }
        let words = strings(pid, "cmdline")?;
        if words.is_empty() {
            return Err(ErrorReport::new(format!("process {pid} has no command line; is it an engine?")));
        }
        // The environment is readable by its owner only; the command line alone still gives a plan.
        let variables = strings(pid, "environ").unwrap_or_default();
        let pair = |variable: String| {
            variable.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        Ok(Self { pid, words, variables: variables.into_iter().filter_map(pair).collect() })
    }

    /// The known flags of its command line, over those of its environment. A wrapper's own words are skipped.
    fn options(&self) -> Result<Options, ErrorReport> {
        let words = self.words.get(1..).unwrap_or_default();
        let (known, _) = Options::known_in(words, |_| FlagOrigin::CommandLine);
        let engine = |(name, _): &&(String, String)| name.starts_with("LLAMA_");
        let set = Options::from_env(self.variables.iter().filter(engine).cloned())?;
        Ok(known.merged_over(&set))
    }

    fn program(&self) -> Option<ProgramKind> {
        ProgramKind::from_name(Path::new(self.words.first()?).file_name()?.to_str()?)
    }

    /// Its program, or the script that its program runs, if the name is an engine's.
    fn engine(&self) -> Option<PathBuf> {
        let program = fs::read_link(format!("/proc/{}/exe", self.pid)).ok();
        let words = self.words.iter().take(2).map(|word| PathBuf::from(self.path(word)));
        let named = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            path.is_file() && name.is_some_and(|name| ProgramKind::from_name(name).is_some())
        };
        program.into_iter().chain(words).find(named)
    }

    /// The flags, with every model file named as it is reached from this process.
    fn reachable(&self, options: &Options) -> Options {
        let files = [FlagClass::Model, FlagClass::Draft, FlagClass::Projector];
        let reached = options.settings().iter().cloned().map(|mut setting| {
            if let (true, SettingValue::Text(path)) = (files.contains(&setting.flag.effect), &setting.value) {
                setting.value = SettingValue::Text(self.path(path));
            }
            setting
        });
        reached.collect()
    }

    /// A path of the process, resolved in its working directory.
    fn path(&self, name: &str) -> String {
        if Path::new(name).is_absolute() {
            return name.to_owned();
        }
        // `/proc/PID/cwd` also leads into the mount namespace of a container, where the plain path would not.
        format!("/proc/{}/cwd/{name}", self.pid)
    }

    /// The cards that the process sees, with the memory that it holds counted as free. AMD's and Intel's are
    /// those on which it holds memory: each runtime has variables of its own.
    fn cards(&self, reading: &Reading, family: &[u32]) -> Vec<Card> {
        let visible =
            self.variables.iter().find(|(name, _)| name == plimsoll_wire::env::CUDA_VISIBLE_DEVICES);
        let machine = plimsoll_cards::look();
        let holds = |card: &Card| reading.used_by(family, &card.id).is_some_and(|used| !used.is_zero());
        let mut others: Vec<Card> = machine.kernel_cards.iter().filter_map(KernelCard::shown).collect();
        others.retain(holds);
        let mut cards = plimsoll_cards::visible(machine.cards, visible.map(|(_, value)| value.as_str()));
        cards.retain(|card| others.is_empty() || holds(card));
        cards.extend(others);
        for card in &mut cards {
            // A card's measurement covers the card alone.
            card.shares_host = false;
            let own = reading.used_by(family, &card.id).unwrap_or_default();
            // The process holds its memory already; without this it would not fit beside itself.
            card.free = (card.free + own).min(card.total);
        }
        if cards.is_empty() {
            cards.extend(machine.host);
        }
        cards
    }
}

/// The zero-terminated strings of a file of `/proc`.
fn strings(pid: u32, file: &'static str) -> Result<Vec<String>, ErrorReport> {
    let bytes = fs::read(format!("/proc/{pid}/{file}"));
    let bytes =
        bytes.map_err(|error| ErrorReport::new(format!("cannot read /proc/{pid}/{file}: {error}")))?;
    let mut words: Vec<String> =
        bytes.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    // The file ends with a zero byte, which leaves an empty word behind the last one.
    words.pop();
    Ok(words)
}
