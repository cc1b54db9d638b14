//! Prints the report of `plimsoll serve --check`: the cards, what each model takes, and mistakes in the file.

use std::collections::BTreeSet;

use plimsoll_base::{Card, counted, one_line};
use plimsoll_config::ConfigMistakes;
use plimsoll_flags::Warning;
use plimsoll_report::wrapped;
use plimsoll_scheduler::place::Ledger;
use plimsoll_serve::{ConfigCheck, Forecast, widest};
use serde_json::{Value, json};

use crate::screen::{TogetherReport, TogetherRow};
use crate::terminal;

/// Columns of the parts of a model's need, and of everything where a terminal is as wide.
const CHECK_WIDTH: usize = 80;
/// The narrowest terminal that lines are wrapped for.
const NARROWEST: usize = 40;
/// Lines of one warning that are named.
const MOST_PLACES: usize = 4;

/// False for a model that the check says no to.
pub(super) fn can_run(model: &Forecast) -> bool {
    model.refused.is_none() && !model.host_too_small
}

/// True if every model of the file can be loaded, and all that are to stay loaded can at once.
pub(super) fn is_good(check: &ConfigCheck) -> bool {
    check.models.iter().all(can_run) && check.conflicts.pins.is_empty()
}

/// The lines of a report, wrapped for a terminal; another program reads whole lines.
struct Lines {
    text: String,
    width: Option<usize>,
}

impl Lines {
    fn say(&mut self, line: &str, indent: usize) {
        match self.width {
            Some(width) => {
                wrapped(line, width, indent).iter().for_each(|line| self.text += &format!("{line}\n"))
            }
            None => self.text += &format!("{}\n", one_line(line)),
        }
    }

    /// A part below a model's line, which is narrow everywhere.
    fn below(&mut self, part: &str, indent: usize, hanging: usize) {
        let width = self.width.unwrap_or(CHECK_WIDTH).saturating_sub(indent).max(NARROWEST / 2);
        for line in wrapped(part, width, hanging) {
            self.text += &format!("{:indent$}{line}\n", "");
        }
    }
}

/// The whole report.
pub(super) fn in_words(check: &ConfigCheck) -> String {
    let columns = terminal::columns().map_or(CHECK_WIDTH, usize::from).clamp(NARROWEST, CHECK_WIDTH);
    report(check, terminal::stdout_is_terminal().then_some(columns))
}

fn report(check: &ConfigCheck, width: Option<usize>) -> String {
    let mut lines = Lines { text: String::new(), width };
    lines.say(&summary(check), 2);
    for conflict in &check.conflicts.pins {
        lines.say(&format!("pins  {conflict}"), 6);
    }
    for conflict in &check.conflicts.preloads {
        lines.say(&format!("preload  {conflict}"), 9);
    }
    for found in &check.found {
        lines.say(&format!("found  {found}"), 7);
    }
    // The ledger of the scheduler computes the limits, so `--check` and admission cannot disagree.
    let ledger = Ledger::new(check.cards.clone());
    for account in ledger.accounts() {
        let cards: Vec<&Card> = check.cards.iter().map(|limit| &limit.card).collect();
        let name = label(&cards, account.card());
        let (gives, total) = (account.limit(), account.card().total);
        lines.say(&format!("card  {name}  at most {gives} of {total} for models"), 6);
    }
    let groups = grouped(&check.models);
    let single = groups.iter().filter(|group| group.names.len() == 1);
    let width = widest(single.map(|group| group.names[0]));
    for group in &groups {
        group.say(&mut lines, width);
    }
    let notes: BTreeSet<&String> = check.models.iter().filter_map(|model| model.note.as_ref()).collect();
    for note in notes {
        lines.below(&format!("note: {note}"), 0, 6);
    }
    for warning in reported_once(&check.warnings, &check.models) {
        lines.say(&format!("warning: {warning}"), 9);
    }
    // Where all fit at the same time, the summary says so.
    let together = together(check);
    if together.models.len() > 1 && !together.all_together() {
        lines.text += &format!("\n{}", together.in_words());
    }
    lines.text
}

/// The name of a card, and its identifier where another has the same name.
fn label(cards: &[&Card], card: &Card) -> String {
    match cards.iter().filter(|other| other.name == card.name).count() {
        1 => card.name.clone(),
        // The identifier of a described card is its name with a number.
        _ if card.id.as_str().starts_with(&card.name) => card.id.to_string(),
        _ => format!("{} {}", card.name, card.id),
    }
}

/// The models beside each other.
fn together(check: &ConfigCheck) -> TogetherReport<'_> {
    let rows = check.models.iter().zip(&check.together.models).map(|(model, verdict)| TogetherRow {
        name: &model.name,
        context: model.context(),
        verdict: verdict.as_ref().ok_or_else(|| {
            model
                .refused
                .as_ref()
                .map_or_else(|| model.text.clone(), |it| it.text.replace("\nhint: ", "; hint: "))
        }),
    });
    TogetherReport {
        cards: check.cards.iter().map(|limit| &limit.card).collect(),
        models: rows.collect(),
        most: check.together.most,
    }
}

/// How many models there are of each kind.
fn summary(check: &ConfigCheck) -> String {
    let count = |is: &dyn Fn(&Forecast) -> bool| check.models.iter().filter(|model| is(model)).count();
    let good = count(&|model| can_run(model));
    let never = count(&Forecast::never_fits);
    let tight =
        count(&|model| model.host_too_small && (model.refused.is_none() || model.lacks_program.is_some()));
    let lacking = count(&|model| model.lacks_program.is_some() && !model.host_too_small);
    let broken = check.models.len() - good - never - tight - lacking;
    let models = counted(check.models.len(), "model");
    let mut parts = vec![match lacking {
        0 => format!("{good} of {models} can be loaded"),
        _ => format!("{} of {models} can be placed on these cards", good + lacking),
    }];
    if good + lacking > 1 && good + lacking == check.models.len() && together(check).all_together() {
        parts[0] += ", all at the same time";
    }
    if lacking > 0 {
        parts.push(format!("{good} can be started, and {lacking} without their program"));
    }
    let mut notify = |count: usize, what: &str| {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    };
    notify(never, "too large for these cards");
    notify(tight, "too large for the host's memory");
    notify(broken, "not loadable as configured");
    if let Some(mistakes) = &check.mistakes {
        parts.push(format!("{} in the file", counted(1 + mistakes.others.len(), "mistake")));
    }
    let warnings = reported_once(&check.warnings, &check.models).len();
    if warnings > 0 {
        parts.push(counted(warnings, "warning"));
    }
    parts.join("; ")
}

/// Models of which the same is said.
struct ModelGroup<'a> {
    names: Vec<&'a str>,
    first: &'a Forecast,
    text: String,
}

/// Models with the same text stand together at the place of the first.
fn grouped(models: &[Forecast]) -> Vec<ModelGroup<'_>> {
    let mut groups: Vec<ModelGroup<'_>> = Vec::new();
    for model in models {
        let text = nameless(&model.text, &model.name);
        let is_same = |group: &&mut ModelGroup<'_>| {
            let other = group.first;
            let reasons =
                |model: &Forecast| model.warnings.iter().map(|it| it.text.clone()).collect::<Vec<_>>();
            let hints = |model: &Forecast| model.hints.iter().map(ToString::to_string).collect::<Vec<_>>();
            group.text == text
                && (other.parts == model.parts
                    && reasons(other) == reasons(model)
                    && hints(other) == hints(model))
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.names.push(&model.name),
            None => groups.push(ModelGroup { names: vec![&model.name], first: model, text }),
        }
    }
    groups
}

/// A text about a model without what differs from one model to the next: its name, and the path of its file.
fn nameless(text: &str, name: &str) -> String {
    let text = text.replace(&format!("{name} could not be started"), "it could not be started");
    let Some((before, after)) = text.split_once(OPENS) else { return text };
    match after.split_once(": ") {
        Some((_, rest)) => format!("{before}cannot open its file: {rest}"),
        None => text,
    }
}

/// Label before the path of a file.
const OPENS: &str = "cannot open /";

impl ModelGroup<'_> {
    fn say(&self, lines: &mut Lines, width: usize) {
        let model = self.first;
        let indent = width + 8;
        match &self.names[..] {
            [name] => lines.say(&format!("model {name:width$}  {}", model.text), indent),
            names => {
                lines.say(&format!("models {}", names.join(", ")), 7);
                lines.say(&format!("{:indent$}{}", "", self.text), indent);
            }
        }
        for warning in &model.warnings {
            lines.below(&format!("warning: {}", warning.text), indent, 9);
        }
        for part in &model.parts {
            lines.below(part, indent, 0);
        }
        for hint in &model.hints {
            lines.say(&format!("      {:width$}  hint: {hint}", ""), indent + 6);
        }
    }
}

/// The warnings that matter: those that differ by the model's name alone are one, with the lines that it
/// holds for.
fn reported_once(warnings: &[Warning], models: &[Forecast]) -> Vec<String> {
    let mut reported: Vec<ReportedWarning> = Vec::new();
    for warning in warnings.iter().filter(|warning| !warning.is_cosmetic) {
        let whole = warning.to_string();
        let text = whole.strip_prefix(&format!("{}: ", warning.origin)).unwrap_or(&whole).to_owned();
        let name = models.iter().map(|model| format!("`{}`", model.name)).find(|name| text.contains(name));
        let key = name.as_ref().map_or_else(|| text.clone(), |name| text.replace(name, "``"));
        let file = warning.origin.to_string();
        let (file, line) = match (file.rsplit_once(':'), warning.origin.line()) {
            (Some((file, line)), Some(_)) => (file.to_owned(), Some(line.to_owned())),
            _ => (file, None),
        };
        match reported.iter_mut().find(|reported| reported.key == key && reported.file == file) {
            Some(reported) => reported.lines.extend(line),
            None => {
                reported.push(ReportedWarning { key, text, name, file, lines: line.into_iter().collect() })
            }
        }
    }
    reported.iter().map(ReportedWarning::in_words).collect()
}

struct ReportedWarning {
    /// The text without the model's name.
    key: String,
    text: String,
    name: Option<String>,
    file: String,
    lines: Vec<String>,
}

impl ReportedWarning {
    fn in_words(&self) -> String {
        let text = match &self.name {
            Some(name) if self.lines.len() > 1 => {
                self.text.replacen(name, &format!("{name} (and {} more)", self.lines.len() - 1), 1)
            }
            _ => self.text.clone(),
        };
        let named = self.lines.iter().take(MOST_PLACES).cloned().collect::<Vec<_>>().join(", ");
        let more = match self.lines.len().saturating_sub(MOST_PLACES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        if named.is_empty() {
            format!("{}: {text}", self.file)
        } else {
            format!("{}:{named}{more}: {text}", self.file)
        }
    }
}

pub(super) fn as_json(check: &ConfigCheck) -> Value {
    let ledger = Ledger::new(check.cards.clone());
    let cards = ledger.accounts().iter().map(|account| {
        let card = account.card();
        json!({ "id": card.id, "name": card.name, "available": account.limit(), "total": card.total })
    });
    let models = check.models.iter().map(|model| {
        let Forecast { name, text, parts, warnings, note, refused, hints, .. } = model;
        json!({
            "name": name, "fits": can_run(model), "text": text, "parts": parts, "warnings": warnings, "note": note,
            "reason": refused, "hints": hints,
        })
    });
    let (cards, models): (Vec<Value>, Vec<Value>) = (cards.collect(), models.collect());
    let reported = check.warnings.iter().filter(|warning| !warning.is_cosmetic);
    json!({
        "schema": "plimsoll.serve-check/1", "summary": summary(check), "cards": cards, "models": models,
        "together": together(check).as_json(|_| Value::Null),
        "conflicts": { "pins": check.conflicts.pins, "preloads": check.conflicts.preloads },
        "found": check.found, "warnings": reported.map(ToString::to_string).collect::<Vec<_>>(),
        "mistakes": check.mistakes.iter().flat_map(errors).collect::<Vec<_>>(),
    })
}

fn errors(mistakes: &ConfigMistakes) -> impl Iterator<Item = String> {
    std::iter::once(&*mistakes.first).chain(&mistakes.others).map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_that_differ_by_a_name_are_one_line() {
        let file = std::sync::Arc::from("c.yaml");
        let of = |name: &str, line| {
            Warning::new(
                plimsoll_flags::FlagOrigin::file(&file, line),
                format!("the engine of `{name}` is open"),
            )
        };
        let warnings = [
            of("a", 3),
            of("b", 5),
            of("c", 7),
            Warning::new(plimsoll_flags::FlagOrigin::file(&file, 0), "x"),
        ];
        let names: Vec<Forecast> = ["a", "b"].map(Forecast::named).into();
        assert_eq!(
            reported_once(&warnings, &names),
            [
                "c.yaml:3, 5: the engine of `a` (and 1 more) is open",
                "c.yaml:7: the engine of `c` is open",
                "c.yaml: x"
            ]
        );
    }

    #[test]
    fn models_of_which_the_same_is_said_stand_together_and_no_line_is_too_wide() {
        let model = |name: &str, text: &str| {
            let mut model = Forecast::named(name);
            text.clone_into(&mut model.text);
            model
        };
        let lost = |name: &str| {
            model(
                name,
                &format!(
                    "cannot be loaded: {name} could not be started: cannot open /m/{name}.gguf: No such file"
                ),
            )
        };
        let check = ConfigCheck {
            cards: Vec::new(),
            models: vec![lost("one"), model("big", "6 GiB planned"), lost("two"), lost("three")],
            conflicts: plimsoll_serve::StandingConflicts {
                pins: vec!["`b` does not fit beside `a`".to_owned()],
                preloads: Vec::new(),
            },
            together: plimsoll_serve::TogetherForecast::default(),
            found: Vec::new(),
            warnings: Vec::new(),
            mistakes: None,
        };
        let text = report(&check, Some(40));
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        let text = report(&check, None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "4 of 4 models can be loaded");
        assert_eq!(lines[1], "pins  `b` does not fit beside `a`");
        assert_eq!(lines[2], "models one, two, three");
        assert_eq!(
            lines[3].trim(),
            "cannot be loaded: it could not be started: cannot open its file: No such file"
        );
        assert_eq!(lines[4], "model big  6 GiB planned");
        assert!(!is_good(&check));
    }
}
