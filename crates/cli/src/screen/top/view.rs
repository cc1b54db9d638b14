//! Prepares what `plimsoll top` shows: cards and models, from a server's snapshot or from this machine's
//! driver.

use plimsoll_base::{Bytes, Card};
use plimsoll_cards::{Machine, Reading};
use serde_json::Value;

use crate::screen::status::{ago, claimed, elsewhere, last_used, measured, requests, size, state};

/// Content of the screen at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TopView {
    pub(super) heading: String,
    pub(super) cards: Vec<TopCard>,
    /// Titles of the columns of [`TopRow::cells`], the most important first.
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<TopRow>,
    /// Rows are models of a server, which takes commands.
    pub(super) has_models: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct TopCard {
    pub(super) name: String,
    pub(super) total: u64,
    /// Bytes up to which models may be loaded, with those of other processes.
    pub(super) load_line: Option<u64>,
    /// They never add up to more than `total`.
    pub(super) parts: Vec<TopPart>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct TopPart {
    pub(super) kind: PartKind,
    pub(super) bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    /// Memory of other processes.
    Foreign,
    /// Memory that a holder was measured to take; neighbours differ in their number.
    Occupied(usize),
    /// Memory that is claimed and not held yet.
    Claimed,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TopRow {
    pub(super) name: String,
    pub(super) cells: Vec<String>,
    pub(super) bytes: u64,
    /// Time since the last request, in seconds.
    pub(super) idle: f64,
    pub(super) in_flight: u64,
    pub(super) is_pinned: bool,
    pub(super) is_loaded: bool,
    /// A sentence about the row, shown while it is selected.
    pub(super) note: String,
}

impl TopView {
    /// The view of `/api/status`; fields that are missing are left out.
    pub(super) fn of_server(status: &Value, url: &str) -> Self {
        let list = |key: &str| status[key].as_array().map(Vec::as_slice).unwrap_or_default();
        let now = status["now"].as_f64();
        let mut rows: Vec<TopRow> = list("models").iter().map(|model| model_row(model, now)).collect();
        let fleet = TopFleet::of(status);
        rows.iter_mut().for_each(|row| fleet.place(row));
        let sum = |key: &str| {
            list("models").iter().filter_map(|model| model[key].as_u64()).fold(0, u64::saturating_add)
        };
        // Such memory looks free in a bar.
        let kept = list("cards")
            .iter()
            .filter_map(|card| card["yield"]["bytes"].as_u64())
            .fold(0, u64::saturating_add);
        let kept = match kept {
            0 => String::new(),
            kept => format!("; {} kept free", Bytes::new(kept)),
        };
        Self {
            heading: format!(
                "{url}: {} in progress, {} waiting{kept}{}",
                sum("in_flight"),
                sum("queued"),
                fleet.heading
            ),
            cards: list("cards")
                .iter()
                .map(server_card)
                .chain(list("other_cards").iter().filter_map(other_card))
                .chain(fleet.hosts)
                .collect(),
            columns: vec!["MODEL", "STATE", "CLAIMED", "MEASURED", "REQUESTS", "LAST USED"],
            rows,
            has_models: true,
        }
    }

    /// The view of a machine without a server.
    pub(super) fn of_machine(machine: &Machine, reading: &Reading) -> Self {
        let shown = machine.gpus();
        let cards = shown.iter().chain(&machine.host).map(|card| machine_card(card, reading));
        let cards = cards.collect();
        let names = || {
            let of_kernel = machine.kernel_cards.iter().map(|card| (&card.id, &card.name));
            machine.cards.iter().map(|card| (&card.id, &card.name)).chain(of_kernel)
        };
        let rows = reading.holders.iter().map(|holder| {
            let name = holder.name.clone().unwrap_or_else(|| "?".to_owned());
            let card = names().find(|(id, _)| **id == holder.card);
            let card = card.map_or_else(|| holder.card.to_string(), |(_, name)| name.clone());
            TopRow {
                cells: vec![
                    plain(&name),
                    holder.pid.to_string(),
                    size(holder.used.map(Bytes::get)),
                    plain(&card),
                ],
                name: holder.pid.to_string(),
                bytes: holder.used.map_or(0, Bytes::get),
                ..TopRow::default()
            }
        });
        Self {
            heading: format!("cards of this machine{}", unknown(machine)),
            cards,
            columns: vec!["PROCESS", "PID", "MEMORY", "CARD"],
            rows: rows.collect(),
            has_models: false,
        }
    }
}

/// Cards without a bar, because a figure of theirs is unknown.
fn unknown(machine: &Machine) -> String {
    let unknown = machine.kernel_cards.iter().filter(|card| card.shown().is_none());
    unknown.map(|card| plain(&format!("; memory of {} unknown", card.name))).collect()
}

/// Other hosts of the server's fleet.
struct TopFleet<'a> {
    heading: String,
    /// Memory of each other host.
    hosts: Vec<TopCard>,
    /// Models that lie on another host, with its name.
    elsewhere: Vec<(&'a str, &'a str)>,
}

impl<'a> TopFleet<'a> {
    fn of(status: &'a Value) -> Self {
        let fleet = &status["fleet"];
        let all = fleet["hosts"].as_array().map(Vec::as_slice).unwrap_or_default();
        let others = || all.iter().filter(|host| host["name"] != fleet["host"]);
        let known =
            fleet["more"].as_u64().unwrap_or_default().saturating_add(all.len().try_into().unwrap_or(0));
        let heading = match fleet["store_answers"].as_bool() {
            None => String::new(),
            Some(true) => format!("; fleet of {known}"),
            Some(false) => format!("; fleet of {known}, store unreachable"),
        };
        Self { heading, hosts: others().map(fleet_host).collect(), elsewhere: elsewhere(status) }
    }

    /// Says of a model that is not loaded here on which host it lies.
    fn place(&self, row: &mut TopRow) {
        let found = self.elsewhere.iter().find(|(model, _)| *model == row.name);
        if let (Some((_, host)), false, Some(state)) = (found, row.is_loaded, row.cells.get_mut(1)) {
            *state = plain(&format!("on {host}"));
        }
    }
}

/// The memory of another host as a bar: what models were given there, and what is free.
fn fleet_host(host: &Value) -> TopCard {
    let bytes = |value: &Value| value.as_u64().unwrap_or_default();
    let total = bytes(&host["capacity"]);
    let models = host["models"].as_array().map(Vec::as_slice).unwrap_or_default();
    let parts =
        models.iter().enumerate().map(|(number, model)| (PartKind::Occupied(number), bytes(&model["need"])));
    let name = plain(host["name"].as_str().unwrap_or("?"));
    TopCard { name, total, load_line: None, parts: within(total, parts.collect()) }
}

fn server_card(card: &Value) -> TopCard {
    let bytes = |value: &Value| value.as_u64().unwrap_or_default();
    let (total, foreign) = (bytes(&card["total"]), bytes(&card["foreign"]));
    let mut parts = vec![(PartKind::Foreign, foreign)];
    let holders = card["holders"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (number, holder) in holders.iter().enumerate() {
        let (claim, measured) = (bytes(&holder["claim"]), bytes(&holder["measured"]));
        parts.push((PartKind::Occupied(number), measured));
        parts.push((PartKind::Claimed, claim.saturating_sub(measured)));
    }
    let load_line = card["capacity"].as_u64().map(|capacity| foreign.saturating_add(capacity).min(total));
    let name = plain(card["name"].as_str().unwrap_or("?"));
    TopCard { name, total, load_line, parts: within(total, parts) }
}

/// A card that no model is placed on; `None` where a figure is unknown.
fn other_card(card: &Value) -> Option<TopCard> {
    let (total, used) = (card["total"].as_u64()?, card["used"].as_u64()?);
    let name = plain(card["name"].as_str().unwrap_or("?"));
    Some(TopCard { name, total, load_line: None, parts: within(total, vec![(PartKind::Foreign, used)]) })
}

fn machine_card(card: &Card, reading: &Reading) -> TopCard {
    let total = card.total.get();
    let free = reading.free_on(&card.id).map_or(card.free, |free| free).get();
    let holders = reading.holders.iter().filter(|holder| holder.card == card.id);
    let occupied: Vec<u64> = holders.filter_map(|holder| holder.used).map(Bytes::get).collect();
    let known = occupied.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    // Held by no process that the driver lists.
    let rest = total.saturating_sub(free).saturating_sub(known);
    let parts = occupied.into_iter().enumerate().map(|(number, bytes)| (PartKind::Occupied(number), bytes));
    let parts = std::iter::once((PartKind::Foreign, rest)).chain(parts).collect();
    TopCard { name: plain(&card.name), total, load_line: None, parts: within(total, parts) }
}

/// The parts, cut where a card is full: readings of two moments may add up to more.
fn within(total: u64, parts: Vec<(PartKind, u64)>) -> Vec<TopPart> {
    let mut left = total;
    let cut = parts.into_iter().map(|(kind, bytes)| {
        let bytes = bytes.min(left);
        left -= bytes;
        TopPart { kind, bytes }
    });
    cut.filter(|part| part.bytes > 0).collect()
}

fn model_row(model: &Value, now: Option<f64>) -> TopRow {
    let is = |word: &str| model["state"].as_str() == Some(word);
    let name = plain(model["name"].as_str().unwrap_or("?"));
    let (claim, measured) = (claimed(model), measured(model));
    let idle = now.zip(model["last_used"].as_f64()).map(|(now, used)| (now - used).max(0.0));
    TopRow {
        cells: vec![
            name.clone(),
            plain(&state(model, now)),
            size(claim),
            size(measured),
            requests(model),
            idle.map_or_else(|| "-".to_owned(), |age| last_used(model, age)),
        ],
        name,
        bytes: measured.or(claim).unwrap_or_default(),
        idle: idle.unwrap_or(f64::INFINITY),
        in_flight: model["in_flight"].as_u64().unwrap_or_default(),
        is_pinned: model["pinned"].as_bool().unwrap_or_default(),
        is_loaded: !is("unloaded") && !is("failed"),
        // A model that runs, or ran since, has left its last failure behind.
        note: match model["failed_at"].as_f64().filter(|_| !["ready", "draining"].into_iter().any(is)) {
            None => String::new(),
            Some(at) => {
                let age = now.map_or_else(String::new, |now| format!("{}: ", ago(now - at)));
                plain(&format!("{age}{}", model["last_failure"]["text"].as_str().unwrap_or_default()))
            }
        },
    }
}

/// Text without characters that move the cursor or change the direction of text.
pub(super) fn plain(text: &str) -> String {
    let turns = |letter: char| matches!(letter, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = |letter: char| if letter.is_control() || turns(letter) { ' ' } else { letter };
    // More would not fit on any screen.
    text.chars().take(400).map(shown).collect()
}
