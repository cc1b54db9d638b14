//! Serves the web page (`/ui`) from files embedded in the program, with a strict content security policy.

use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    X_FRAME_OPTIONS,
};

use super::api::{Action, Own};
use super::headers::text;
use super::model_service::Pass;
use super::reply::{self, Reply};

/// Scripts come from this server alone and the style is the document's own, no script can make text into
/// markup, and no other page may show this one in a frame.
const POLICY: &str = include_str!("page/policy.txt");

const HEADERS: [(HeaderName, &str); 5] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    // A new version of the program has a new page under the same path.
    (CACHE_CONTROL, "no-cache"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// A file of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageFile {
    Document,
    Script,
    Icon,
}

impl PageFile {
    fn content(self) -> (&'static str, &'static str) {
        match self {
            Self::Document => ("text/html; charset=utf-8", include_str!("page/index.html")),
            Self::Script => ("text/javascript; charset=utf-8", include_str!("page/page.js")),
            Self::Icon => ("image/svg+xml", include_str!("page/icon.svg")),
        }
    }
}

pub(crate) fn answer<P: Pass>(file: PageFile) -> Reply<P> {
    let (kind, content) = file.content();
    let mut reply = reply::text(kind, content);
    for (name, value) in HEADERS {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// The page, for a browser that opens `/`.
pub(crate) fn for_browser(action: Action, headers: &HeaderMap) -> Action {
    let is_browser = || text(headers, &ACCEPT).is_some_and(|kinds| kinds.contains("text/html"));
    match action {
        Action::Own(Own::Root) if is_browser() => Action::Own(Own::Page(PageFile::Document)),
        action => action,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole page, as it travels.
    const MOST: usize = 250_000;

    #[test]
    fn the_page_is_small_and_asks_nobody_else() {
        let files = [PageFile::Document, PageFile::Script, PageFile::Icon];
        let size: usize = files.iter().map(|file| file.content().1.len()).sum();
        assert!(size < MOST, "{size} bytes");
        for file in files {
            let text = file.content().1;
            let links = text.match_indices("http").filter(|(at, _)| text[at + 4..].starts_with(['s', ':']));
            // Names of XML vocabularies are no requests.
            let foreign = links.map(|(at, _)| text[at..].chars().take(40).collect::<String>());
            let foreign: Vec<_> = foreign.filter(|link| !link.starts_with("http://www.w3.org/")).collect();
            assert!(foreign.is_empty(), "{file:?}: {foreign:?}");
        }
    }

    #[test]
    fn nothing_in_its_policy_is_unsafe() {
        assert!(!POLICY.contains("unsafe") && POLICY.contains("frame-ancestors 'none'"));
        assert!(
            POLICY.contains("style-src 'sha256-") && POLICY.is_ascii() && !POLICY.contains('\n'),
            "{POLICY}"
        );
        // Scripts inside the document would be refused by the policy, and so would any style but the one that
        // it names.
        let document = PageFile::Document.content().1;
        assert_eq!(document.matches("<style").count(), 1);
        assert!(!document.contains("style=\""));
        assert!(
            document.matches("<script").count() == document.matches("<script type=\"module\" src=").count()
        );
    }
}
