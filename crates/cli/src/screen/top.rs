//! Draws `plimsoll top`, the full-screen view of a running server or of this machine's cards.
//!
//! The screen has no access to the terminal or the server. It takes snapshots and keys, draws on a buffer,
//! and returns the commands that the keys ask for.

mod draw;
mod happened;
#[cfg(test)]
mod tests;
mod view;

use std::cmp::Ordering;

use plimsoll_cards::{Machine, Reading};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::Value;

use happened::Happened;
use view::{TopRow, TopView, plain};

/// A request to the server that a key asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopCommand {
    pub(crate) verb: TopVerb,
    pub(crate) model: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopVerb {
    Load,
    Unload,
    Pin,
    Unpin,
}

/// Effect of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TopEffect {
    /// Draw again.
    Draw,
    Send(TopCommand),
    Quit,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RowOrder {
    #[default]
    AsListed,
    Memory,
    LastUsed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    List,
    /// The keys write the filter.
    Filter,
    /// The next key confirms an unload.
    Confirm(TopCommand),
}

#[derive(Debug, Default)]
pub(crate) struct TopScreen {
    view: TopView,
    happened: Happened,
    /// Name of the selected row, which may move or leave.
    selected: Option<String>,
    order: RowOrder,
    filter: String,
    mode: Mode,
    /// Last line; empty for the list of keys.
    message: String,
    has_colour: bool,
}

impl TopScreen {
    pub(crate) fn new(has_colour: bool) -> Self {
        Self { has_colour, ..Self::default() }
    }

    /// Shows a server's `/api/status`.
    pub(crate) fn show_server(&mut self, status: &Value, url: &str) {
        self.view = TopView::of_server(status, url);
        self.happened.take(status);
    }

    pub(crate) fn show_machine(&mut self, machine: &Machine, reading: &Reading) {
        self.view = TopView::of_machine(machine, reading);
        self.happened = Happened::default();
    }

    /// Shows a sentence in the last line, until the next key.
    pub(crate) fn say(&mut self, message: &str) {
        self.message = plain(message);
    }

    /// Takes a key; `None` if it means nothing.
    pub(crate) fn press(&mut self, key: KeyEvent) -> Option<TopEffect> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return (key.code == KeyCode::Char('c')).then_some(TopEffect::Quit);
        }
        self.message.clear();
        match std::mem::take(&mut self.mode) {
            Mode::List => self.list_key(key.code),
            Mode::Filter => {
                self.filter_key(key.code);
                Some(TopEffect::Draw)
            }
            Mode::Confirm(command) => {
                Some(if key.code == KeyCode::Char('y') { TopEffect::Send(command) } else { TopEffect::Draw })
            }
        }
    }

    fn list_key(&mut self, key: KeyCode) -> Option<TopEffect> {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return Some(TopEffect::Quit),
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::Char('s') => {
                self.order = match self.order {
                    RowOrder::AsListed => RowOrder::Memory,
                    RowOrder::Memory => RowOrder::LastUsed,
                    RowOrder::LastUsed => RowOrder::AsListed,
                };
            }
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('l') => return self.command(TopVerb::Load).map(TopEffect::Send),
            KeyCode::Char('p') => {
                let is_pinned = self.selected_row()?.is_pinned;
                let verb = if is_pinned { TopVerb::Unpin } else { TopVerb::Pin };
                return self.command(verb).map(TopEffect::Send);
            }
            KeyCode::Char('u') => self.mode = Mode::Confirm(self.command(TopVerb::Unload)?),
            _ => return None,
        }
        Some(TopEffect::Draw)
    }

    fn filter_key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => return,
            KeyCode::Esc => {
                self.filter.clear();
                return;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) if self.filter.len() < 64 => self.filter.push(letter),
            _ => {}
        }
        self.mode = Mode::Filter;
    }

    /// The command for the selected model; a process of the machine takes none.
    fn command(&self, verb: TopVerb) -> Option<TopCommand> {
        let model = self.selected_row().filter(|_| self.view.has_models)?.name.clone();
        Some(TopCommand { verb, model })
    }

    fn select(&mut self, step: isize) {
        let rows = self.rows();
        let last = rows.len().saturating_sub(1);
        let at = rows.iter().position(|row| Some(&row.name) == self.selected.as_ref());
        let at = at.unwrap_or(0).saturating_add_signed(step).min(last);
        self.selected = rows.get(at).map(|row| row.name.clone());
    }

    /// The selected row, or the first.
    fn selected_row(&self) -> Option<&TopRow> {
        let rows = self.rows();
        let selected = rows.iter().find(|row| Some(&row.name) == self.selected.as_ref());
        selected.or(rows.first()).copied()
    }

    /// The rows that the filter leaves, in order.
    fn rows(&self) -> Vec<&TopRow> {
        let wanted = self.filter.to_lowercase();
        let is_wanted = |row: &&TopRow| row.cells.iter().any(|cell| cell.to_lowercase().contains(&wanted));
        let mut rows: Vec<&TopRow> = self.view.rows.iter().filter(is_wanted).collect();
        rows.sort_by(|a, b| match self.order {
            RowOrder::AsListed => Ordering::Equal,
            RowOrder::Memory => b.bytes.cmp(&a.bytes),
            RowOrder::LastUsed => a.idle.total_cmp(&b.idle),
        });
        rows
    }
}
