//! Writes self-contained HTML pages, such as those of recordings and load tests.

use std::fmt::Write;

use crate::{escaped, page_style};

pub(crate) const STYLE: &str = include_str!("page.css");

/// HTML page that is being written.
#[derive(Debug)]
pub struct ReportPage(String);

impl ReportPage {
    /// Begins a page; the title is its first heading too.
    pub fn new(title: &str) -> Self {
        let title = escaped(title);
        // Styles are inlined, so that a report still opens as an attachment or from an archive.
        Self(format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
             content=\"width=device-width\"><title>{title}</title>\n<style>{}</style></head><body>\n\
             <h1>{title}</h1>\n",
            page_style()
        ))
    }

    /// Begins a part of a page that has its own head and end.
    pub fn part() -> Self {
        Self(String::new())
    }

    /// Returns the part.
    pub fn into_markup(self) -> String {
        self.0
    }

    /// Adds the verdict of the whole report.
    pub fn verdict(&mut self, text: &str, is_bad: bool) {
        let class = if is_bad { "verdict bad" } else { "verdict" };
        self.element("p", class, text);
    }

    /// Adds a heading of a section.
    pub fn heading(&mut self, text: &str) {
        self.element("h2", "", text);
    }

    /// Adds a paragraph.
    pub fn text(&mut self, text: &str) {
        self.element("p", "", text);
    }

    /// Adds a paragraph of secondary facts.
    pub fn faint(&mut self, text: &str) {
        self.element("p", "faint", text);
    }

    /// Adds preformatted lines.
    pub fn lines(&mut self, text: &str) {
        self.element("pre", "", text);
    }

    /// Adds a list under a heading; nothing where it is empty.
    pub fn list(&mut self, heading: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        self.heading(heading);
        self.markup("<ul>");
        for item in items {
            self.element("li", "", item);
        }
        self.markup("</ul>\n");
    }

    /// Adds markup as it is: pictures, and elements that a script needs. Its texts must be escaped.
    pub fn markup(&mut self, markup: &str) {
        self.0.push_str(markup);
    }

    /// Adds a table; cells that begin with a digit or a sign are aligned to the right.
    pub fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        if rows.is_empty() {
            return;
        }
        self.markup("<table>\n");
        if !head.is_empty() {
            let cells: String = head.iter().map(|cell| format!("<th>{}</th>", escaped(cell))).collect();
            self.push(format_args!("<thead><tr>{cells}</tr></thead>\n"));
        }
        for row in rows {
            self.markup("<tr>");
            for cell in row {
                // Cells are text by now; the first character tells a figure from a name.
                let is_number = cell.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+');
                self.element("td", if is_number { "number" } else { "" }, cell);
            }
            self.markup("</tr>\n");
        }
        self.markup("</table>\n");
    }

    /// Ends the page and returns it.
    pub fn finish(self) -> String {
        self.0 + "</body></html>\n"
    }

    fn element(&mut self, name: &str, class: &str, text: &str) {
        let text = escaped(text);
        match class {
            "" => self.push(format_args!("<{name}>{text}</{name}>\n")),
            class => self.push(format_args!("<{name} class=\"{class}\">{text}</{name}>\n")),
        }
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(text);
    }
}
