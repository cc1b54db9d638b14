//! Puts the page together: its sources and the planner in one file, whose policy names its script and style.
//!
//! DECISION: one file, with the module as base64. It works from a disk, where a browser fetches nothing, and
//! needs no network once it is loaded. Compressed, base64 costs a few percent.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::write::GzEncoder;
use ring::digest::{SHA256, digest};

const INDEX: &str = include_str!("../../../crates/site/src/page/index.html");
const STYLES: [&str; 3] = [
    include_str!("../../../crates/report/src/chart.css"),
    include_str!("../../../crates/report/src/page.css"),
    include_str!("../../../crates/site/src/page/site.css"),
];
/// In the order in which they use each other.
const SCRIPTS: [&str; 7] = [
    include_str!("../../../crates/site/src/page/planner.js"),
    include_str!("../../../crates/site/src/page/header.js"),
    include_str!("../../../crates/site/src/page/hub.js"),
    include_str!("../../../crates/site/src/page/question.js"),
    include_str!("../../../crates/site/src/page/quants.js"),
    include_str!("../../../crates/site/src/page/main.js"),
    include_str!("../../../crates/site/src/page/events.js"),
];
const ICON: &str = include_str!("../../../page/src/icon.svg");

/// The page with this module of WebAssembly.
pub(super) fn page(module: &[u8]) -> io::Result<String> {
    let style = STYLES.concat();
    let script = format!("\"use strict\";\n(() => {{\n{}}})();\n", SCRIPTS.concat());
    let page = [
        ("POLICY", policy(&style, &script)),
        ("STYLE", style),
        ("SCRIPT", script),
        ("ICON", format!("data:image/svg+xml;base64,{}", BASE64.encode(ICON.trim()))),
        ("VERSION", env!("CARGO_PKG_VERSION").to_owned()),
        ("PLANNER", BASE64.encode(module)),
    ];
    let mut text = INDEX.to_owned();
    for (place, content) in page {
        if !INDEX.contains(place) {
            return Err(io::Error::other(format!("index.html has no place for {place}")));
        }
        text = text.replace(place, &content);
    }
    Ok(text)
}

// DECISION: the user names the server, so the policy allows requests to any by https, and to this machine.
// No script, style, font or picture comes from elsewhere. The page asks only the server that is named.
fn policy(style: &str, script: &str) -> String {
    let hash = |text: &str| BASE64.encode(digest(&SHA256, text.as_bytes()));
    format!(
        "default-src 'none'; script-src 'sha256-{}' 'wasm-unsafe-eval'; style-src 'sha256-{}'; img-src data:; \
         connect-src https: http://127.0.0.1:* http://localhost:*; base-uri 'none'; form-action 'none'; \
         require-trusted-types-for 'script'; trusted-types plan",
        hash(script),
        hash(style)
    )
}

/// Bytes after gzip's best compression.
pub(super) fn compressed(bytes: &[u8]) -> io::Result<usize> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_one_file_that_names_nothing_of_others() {
        let page = page(b"\0asm").unwrap();
        for foreign in ["src=\"http", "<link rel=\"stylesheet", "@import", "url(\"http", "style=\""] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert_eq!(page.matches("<script").count(), 2);
        let policy = page.split_once("Content-Security-Policy\" content=\"").unwrap().1;
        let policy = policy.split_once('"').unwrap().0;
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("'unsafe-inline'"), "{policy}");
        assert!(page.contains(&BASE64.encode(b"\0asm")));
    }
}
