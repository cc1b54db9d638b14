//! Draws `plimsoll top` into the buffer of a terminal.

use plimsoll_base::Bytes;
use plimsoll_report::wrapped;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState, Wrap};

use super::view::{PartKind, TopCard};
use super::{Mode, RowOrder, TopScreen, TopVerb};

/// Widths of the columns of a server's models and of a machine's processes. A narrow terminal shows the first
/// of them.
const MODEL_WIDTHS: [u16; 6] = [20, 18, 10, 10, 20, 16];
const PROCESS_WIDTHS: [u16; 4] = [20, 10, 11, 24];
const KEYS: &str = "q quit  ↑↓ select  s sort  / filter";
const MODEL_KEYS: &str = "  l load  u unload  p pin";
/// Colours of neighbouring holders.
const COLOURS: [Color; 5] = [Color::Cyan, Color::Green, Color::Blue, Color::Magenta, Color::Yellow];

/// Most lines of a sentence below the list.
const MOST_LINES: u16 = 5;
/// A narrower terminal shows shorter figures.
const NARROW: u16 = 64;

/// Lines of a sentence, which may be a refusal with its causes.
fn lines_of(text: &str, width: u16) -> u16 {
    let lines = if text.is_empty() { 0 } else { wrapped(text, width.max(1).into(), 0).len() };
    u16::try_from(lines).unwrap_or(MOST_LINES).min(MOST_LINES)
}

/// Two sizes in GiB with one decimal.
fn in_gib(used: u64, total: u64) -> String {
    let tenths = |bytes: u64| bytes.saturating_mul(10) >> 30;
    let gib = |bytes: u64| format!("{}.{}", tenths(bytes) / 10, tenths(bytes) % 10);
    format!(" {}/{} GiB", gib(used), gib(total))
}

impl TopScreen {
    pub(crate) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let note = self.selected_row().map(|row| row.note.as_str()).unwrap_or_default();
        // The list comes first where there is little room: cards and the note share what it leaves.
        let cards = u16::try_from(self.view.cards.len()).unwrap_or(u16::MAX).min(area.height / 3);
        let note_height = if area.height < 10 { 0 } else { lines_of(note, area.width) };
        let last_line = self.last_line();
        let last_height = if area.height < 10 { 1 } else { lines_of(&last_line, area.width).max(1) };
        let gap = u16::from(area.height > 8);
        let left = area.height.saturating_sub(1 + last_height + cards + gap + note_height);
        // The list and its heading come before the lines below, which get a blank line above them.
        let rows = u16::try_from(self.rows().len() + 1).unwrap_or(u16::MAX).clamp(2, left.max(2));
        let log = left.saturating_sub(rows);
        let parts = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(cards),
            Constraint::Length(gap),
            Constraint::Length(rows),
            Constraint::Length(log),
            Constraint::Length(note_height),
            Constraint::Length(last_height),
        ]);
        let [head, bars, _, list, log, below, last] = parts.areas(area);
        for (line, row) in
            self.happened.lines(log.height.saturating_sub(1).into()).into_iter().zip(log.rows().skip(1))
        {
            frame.render_widget(Line::raw(line), row);
        }
        frame.render_widget(Line::styled(self.heading(), Modifier::BOLD), head);
        self.bars(frame, bars);
        self.list(frame, list);
        frame.render_widget(Paragraph::new(note).wrap(Wrap { trim: true }), below);
        frame.render_widget(Paragraph::new(last_line).wrap(Wrap { trim: true }), last);
    }

    fn heading(&self) -> String {
        let order = match self.order {
            RowOrder::AsListed => "",
            RowOrder::Memory => "; by memory",
            RowOrder::LastUsed => "; last used first",
        };
        let filter = if self.filter.is_empty() { String::new() } else { format!("; filter {}", self.filter) };
        format!("plimsoll top: {}{order}{filter}", self.view.heading)
    }

    fn last_line(&self) -> String {
        match &self.mode {
            Mode::Filter => format!("filter: {}_  (Enter keeps it, Esc clears it)", self.filter),
            Mode::Confirm(command) => self.question(&command.model),
            Mode::List if self.message.is_empty() => {
                format!("{KEYS}{}", if self.view.has_models { MODEL_KEYS } else { "" })
            }
            Mode::List => self.message.clone(),
        }
    }

    /// The consequence of an unload, before it happens.
    fn question(&self, model: &str) -> String {
        let row = self.view.rows.iter().find(|row| row.name == model);
        let (bytes, busy) = row.map_or((0, 0), |row| (row.bytes, row.in_flight));
        let when = match busy {
            0 => String::new(),
            1 => " after its answer in progress".to_owned(),
            busy => format!(" once its {busy} current answers are finished"),
        };
        format!("unload {model}: frees {}{when}. y to unload, any other key to keep it", Bytes::new(bytes))
    }

    fn bars(&self, frame: &mut Frame<'_>, area: Rect) {
        let name = self.view.cards.iter().map(|card| card.name.chars().count()).max().unwrap_or(0);
        let name = u16::try_from(name).unwrap_or(u16::MAX).min(area.width / 4).max(1);
        for (card, line) in self.view.cards.iter().zip(area.rows()) {
            let used: u64 = card.parts.iter().map(|part| part.bytes).sum();
            let long = format!(" {} of {}", Bytes::new(used), Bytes::new(card.total));
            let figure = if line.width < NARROW { in_gib(used, card.total) } else { long };
            let figure_width = u16::try_from(figure.len()).unwrap_or(u16::MAX).min(line.width / 2);
            let parts = [Constraint::Length(name + 1), Constraint::Min(4), Constraint::Length(figure_width)];
            let [label, bar, text] = Layout::horizontal(parts).areas(line);
            frame.render_widget(Line::raw(card.name.as_str()), label);
            frame.render_widget(self.bar(card, bar.width), bar);
            frame.render_widget(Line::raw(figure).right_aligned(), text);
        }
    }

    /// A bar whose width stands for the card's memory. The load line is the mark `│`.
    fn bar(&self, card: &TopCard, width: u16) -> Line<'_> {
        let column = |bytes: u64| {
            let column = u128::from(bytes) * u128::from(width) / u128::from(card.total.max(1));
            usize::try_from(column).unwrap_or(usize::MAX)
        };
        let mut cells = vec![("·", Style::new()); width.into()];
        let mut end = 0_u64;
        for part in &card.parts {
            let start = column(end);
            end = end.saturating_add(part.bytes);
            let stop = column(end).min(cells.len());
            cells.get_mut(start..stop).into_iter().flatten().for_each(|cell| *cell = self.look(part.kind));
        }
        let line = card.load_line.filter(|line| *line < card.total).map(column);
        if let Some(cell) = line.and_then(|line| cells.get_mut(line)) {
            *cell = ("│", Style::new().add_modifier(Modifier::BOLD));
        }
        Line::from_iter(cells.into_iter().map(|(text, style)| Span::styled(text, style)))
    }

    /// Neighbours differ in their character as well, as a terminal may have no colour.
    fn look(&self, kind: PartKind) -> (&'static str, Style) {
        let (text, colour) = match kind {
            PartKind::Foreign => ("▒", Color::DarkGray),
            PartKind::Occupied(number) => {
                (if number % 2 == 0 { "█" } else { "▓" }, COLOURS[number % COLOURS.len()])
            }
            PartKind::Claimed => ("░", Color::Reset),
        };
        (text, if self.has_colour { Style::new().fg(colour) } else { Style::new() })
    }

    fn list(&self, frame: &mut Frame<'_>, area: Rect) {
        let widths: &[u16] = if self.view.has_models { &MODEL_WIDTHS } else { &PROCESS_WIDTHS };
        let rows = self.rows();
        let longest = rows.iter().map(|row| row.cells.first().map_or(0, |cell| cell.chars().count())).max();
        let first = longest.and_then(|width| u16::try_from(width).ok()).unwrap_or(0).clamp(8, 40);
        let widths = std::iter::once(first).chain(widths.iter().skip(1).copied());
        let mut used = 0;
        let shown: Vec<Constraint> = widths
            .take_while(|width| {
                used += width + 1;
                // The first column is shown in any case.
                used <= area.width + 1 || used == width + 1
            })
            .map(Constraint::Length)
            .collect();
        let cells = |cells: &[String]| {
            Row::new(cells.iter().take(shown.len()).cloned().map(Cell::from).collect::<Vec<_>>())
        };
        let head: Vec<String> = self.view.columns.iter().map(|&title| title.to_owned()).collect();
        let selected = self.selected_row().map(|row| &row.name);
        let selected = rows.iter().position(|row| Some(&row.name) == selected);
        let table = Table::new(rows.iter().map(|row| cells(&row.cells)), shown.clone())
            .header(cells(&head).style(Modifier::BOLD))
            .row_highlight_style(Modifier::REVERSED);
        frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(selected));
    }
}

impl TopVerb {
    /// Path of the request.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Load => "/models/load",
            Self::Unload => "/models/unload",
            Self::Pin => "/api/models/pin",
            Self::Unpin => "/api/models/unpin",
        }
    }

    /// Word for the message after the request.
    pub(crate) fn done(self) -> &'static str {
        match self {
            Self::Load => "loading",
            Self::Unload => "unloading",
            Self::Pin => "pinned",
            Self::Unpin => "no longer pinned:",
        }
    }
}
