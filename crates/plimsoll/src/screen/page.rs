//! One file of HTML that needs nothing else: no script, no network, readable as text.

use std::fmt::Write;

use super::chart;
use super::svg::escaped;

const STYLE: &str = ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,'DejaVu Sans',sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem;\
background:#fff;color:#202124}h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}table{border-collapse:collapse;margin:.6rem 0}\
th,td{text-align:left;padding:.2rem .9rem .2rem 0;border-bottom:1px solid #dadce0;vertical-align:top}td.number{text-align:right;font-variant-numeric:tabular-nums}\
svg{max-width:100%;height:auto;display:block;margin:.8rem 0}pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f6f7f8;padding:.7rem;border-radius:4px;font-size:.85rem}\
.verdict{font-size:1.15rem;border-left:4px solid #0072b2;padding:.2rem .8rem}.verdict.bad{border-color:#b3261e}\
@media (prefers-color-scheme:dark){body{background:#16181b;color:#e8eaed}pre{background:#202327}th,td{border-color:#3c4043}}";

/// A page being written.
#[derive(Debug)]
pub(crate) struct Page(String);

impl Page {
    pub(crate) fn new(title: &str) -> Self {
        let title = escaped(title);
        Self(format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
             <title>{title}</title>\n<style>{STYLE}{}</style></head><body>\n<h1>{title}</h1>\n",
            chart::STYLE
        ))
    }

    pub(crate) fn verdict(&mut self, text: &str, is_bad: bool) {
        let class = if is_bad { "verdict bad" } else { "verdict" };
        self.push(format_args!("<p class=\"{class}\">{}</p>\n", escaped(text)));
    }

    pub(crate) fn heading(&mut self, text: &str) {
        self.push(format_args!("<h2>{}</h2>\n", escaped(text)));
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.push(format_args!("<p>{}</p>\n", escaped(text)));
    }

    /// Text as it is, line by line.
    pub(crate) fn lines(&mut self, text: &str) {
        self.push(format_args!("<pre>{}</pre>\n", escaped(text)));
    }

    /// A picture, which is markup already.
    pub(crate) fn picture(&mut self, svg: &str) {
        self.0.push_str(svg);
    }

    /// A table; cells that begin with a digit stand to the right.
    pub(crate) fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        if rows.is_empty() {
            return;
        }
        self.0.push_str("<table>\n");
        if !head.is_empty() {
            let head: String = head
                .iter()
                .map(|cell| format!("<th>{}</th>", escaped(cell)))
                .collect();
            self.push(format_args!("<tr>{head}</tr>\n"));
        }
        for row in rows {
            self.0.push_str("<tr>");
            for cell in row {
                let is_number = cell.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+');
                let class = if is_number { " class=\"number\"" } else { "" };
                self.push(format_args!("<td{class}>{}</td>", escaped(cell)));
            }
            self.0.push_str("</tr>\n");
        }
        self.0.push_str("</table>\n");
    }

    /// A long text behind its name.
    pub(crate) fn folded(&mut self, name: &str, text: &str) {
        let (name, text) = (escaped(name), escaped(text));
        self.push(format_args!(
            "<details><summary>{name}</summary><pre>{text}</pre></details>\n"
        ));
    }

    pub(crate) fn finish(self) -> String {
        self.0 + "</body></html>\n"
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // writing to a string cannot fail
        let _ = self.0.write_fmt(text);
    }
}
