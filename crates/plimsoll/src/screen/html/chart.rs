//! A card's terms against the context, as areas upon each other, under the load line.

use std::fmt::{self, Write};

use plimsoll_base::Bytes;
use plimsoll_planner::CardPlan;
use plimsoll_planner::fit::Point;

use super::{TERMS, amounts, peak, ratio};

/// From the left edge to the plot: room for the scale.
pub(super) const LEFT: f64 = 90.0;
pub(super) const WIDTH: f64 = 890.0;
const TOP: f64 = 12.0;
const HEIGHT: f64 = 200.0;
const BOTTOM: f64 = TOP + HEIGHT;

/// The largest context of the points.
pub(super) fn most(points: &[Point]) -> u64 {
    points.last().map_or(1, |point| point.context)
}

pub(super) struct Chart<'a> {
    points: &'a [Point],
    index: usize,
    card: &'a CardPlan,
    asked: u64,
    held: Bytes,
    full: Bytes,
}

impl<'a> Chart<'a> {
    pub(super) fn new(points: &'a [Point], index: usize, card: &'a CardPlan, asked: u64) -> Self {
        let held = card.total.saturating_sub(card.free);
        let peaks = points.iter().filter_map(|point| point.cards.get(index)).map(peak);
        let most = (peaks.max().unwrap_or_default() + held).max(card.total);
        Self {
            points,
            index,
            card,
            asked,
            held,
            full: most + most.scaled(1, 20),
        }
    }

    fn x(&self, context: u64) -> f64 {
        LEFT + WIDTH * ratio(Bytes::new(context), Bytes::new(most(self.points)))
    }

    fn y(&self, bytes: Bytes) -> f64 {
        BOTTOM - HEIGHT * ratio(bytes, self.full)
    }

    pub(super) fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "<svg viewBox=\"0 0 1000 240\" role=\"img\" aria-label=\"memory against context\"><rect class=\"hull\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>"
        )?;
        for term in 0..TERMS.len() {
            self.write_area(term, out)?;
        }
        self.write_scale(out)?;
        let line = self.y(self.card.total);
        let (right, mark) = (LEFT + WIDTH, self.x(self.asked));
        writeln!(
            out,
            "<line class=\"limit\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{line:.1}\" y2=\"{line:.1}\"><title>load line: {}</title></line>\n<line id=\"mark-{}\" class=\"mark\" x1=\"{mark:.1}\" x2=\"{mark:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\"/></svg>",
            self.card.total, self.index
        )
    }

    /// Bytes below the top of a term at a point.
    fn top(&self, point: &Point, term: usize) -> Bytes {
        let own = point.cards.get(self.index).map(amounts).unwrap_or_default();
        self.held + own.into_iter().take(term).sum()
    }

    fn write_area(&self, term: usize, out: &mut String) -> fmt::Result {
        let (name, _, class) = TERMS[term];
        let mut path = String::new();
        let below = |point: &Point| match term.checked_sub(1) {
            Some(lower) => self.top(point, lower),
            None => Bytes::ZERO,
        };
        for (at, point) in self.points.iter().enumerate() {
            let step = if at == 0 { 'M' } else { 'L' };
            write!(
                path,
                "{step}{:.1} {:.1}",
                self.x(point.context),
                self.y(self.top(point, term))
            )?;
        }
        for point in self.points.iter().rev() {
            write!(path, "L{:.1} {:.1}", self.x(point.context), self.y(below(point)))?;
        }
        writeln!(
            out,
            "<path class=\"{class}\" d=\"{path}Z\"><title>{name}</title></path><path d=\"{path}Z\" fill=\"url(#p-{class})\"/>"
        )
    }

    fn write_scale(&self, out: &mut String) -> fmt::Result {
        for part in [0, 1, 2] {
            let bytes = self.card.total.scaled(part, 2);
            let (x, y) = (LEFT - 8.0, self.y(bytes) + 4.0);
            writeln!(
                out,
                "<text class=\"faint\" x=\"{x}\" y=\"{y:.1}\" font-size=\"13\" text-anchor=\"end\">{bytes}</text>"
            )?;
        }
        let baseline = BOTTOM + 20.0;
        for part in 0..=4 {
            let context = most(self.points) * part / 4;
            let anchor = if part == 4 { "end" } else { "middle" };
            writeln!(
                out,
                "<text class=\"faint\" x=\"{:.1}\" y=\"{baseline}\" font-size=\"13\" text-anchor=\"{anchor}\">{context}</text>",
                self.x(context)
            )?;
        }
        Ok(())
    }
}
