//! Refuses requests of foreign web pages, by their web origin and host name (CORS, DNS rebinding).
//!
//! By default only this server's own page is allowed. Any other is refused before its request has any effect.

use http::Uri;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::headers::text;

const LOCALHOST: &str = "localhost";
/// Domain of the origins that engines have for their pages.
const ENGINES: &str = ".engine.localhost";
/// Header with which browsers report the origin of a request without `Origin`, for example of an image.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// How the answer will be used: `navigate` for a page that the user opens.
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// As what: `document`, `iframe`, `serviceworker` and others.
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const SERVICE_WORKER: HeaderName = HeaderName::from_static("service-worker");

/// The origins of web pages that are allowed, beside this server's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origins {
    /// No others.
    #[default]
    Own,
    Any,
    These(Vec<String>),
}

impl Origins {
    fn allow(&self, origin: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Own => false,
            Self::These(origins) => origins.iter().any(|allowed| {
                allowed.eq_ignore_ascii_case(origin) || allowed == LOCALHOST && is_loopback(origin)
            }),
        }
    }

    /// True if the request does not come from a web page, or comes from one that may make it.
    ///
    /// DECISION: a page of another port of this machine is another origin, as for every browser: any program
    /// may have served it. A user who follows a link from another site still sees what nothing changes.
    pub fn permit(&self, changes: bool, headers: &HeaderMap) -> bool {
        let Some(origin) = headers.get(header::ORIGIN) else {
            if !has_fetch_metadata(headers) {
                // It is a program, or a browser too old to say where the request comes from.
                return true;
            }
            let says = |name, value: &str| text(headers, &name) == Some(value);
            let is_visit = says(SEC_FETCH_MODE, "navigate") && says(SEC_FETCH_DEST, "document");
            return match text(headers, &SEC_FETCH_SITE) {
                // A page of another port is of the same site.
                Some("cross-site" | "same-site") => *self == Self::Any || is_visit && !changes,
                _ => true,
            };
        };
        origin.to_str().is_ok_and(|origin| is_own(origin, headers) || self.allow(origin))
    }

    /// True if the name in `Host` is allowed for this machine: an address, `localhost`, the machine's own
    /// `hostname`, or a name of an allowed origin.
    pub(crate) fn permit_host(&self, host: Option<&HeaderValue>, hostname: &str) -> bool {
        let Some(own) = host else {
            return true;
        };
        let Ok(own) = own.to_str() else { return false };
        let named = |origins: &[String]| origins.iter().any(|origin| host_of(origin) == Some(own));
        is_own_name(own, hostname)
            || match self {
                Self::Any => true,
                Self::Own => false,
                Self::These(origins) => named(origins),
            }
    }

    /// Adds the headers that let the page read the answer.
    pub fn grant(&self, origin: Option<&HeaderValue>, answer: &mut HeaderMap) {
        let Some(origin) = origin else { return };
        if origin.to_str().is_ok_and(|origin| self.allow(origin)) {
            answer.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            // Where every origin is allowed, no page gets the cookies of a proxy in front of this server.
            if *self != Self::Any {
                answer.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
            }
        }
        // Caches must not hand one page's grant to another.
        answer.append(header::VARY, HeaderValue::from_static("origin"));
    }

    /// Answers a preflight for a path, which takes any method or those of llama-server; the origin itself is
    /// granted by [`Origins::grant`].
    pub(crate) fn preflight(is_any: bool, request: &HeaderMap, answer: &mut HeaderMap) {
        let methods = if is_any {
            HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE, OPTIONS")
        } else {
            HeaderValue::from_static("GET, POST, DELETE, OPTIONS")
        };
        answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        let requested = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        let headers = requested.unwrap_or(HeaderValue::from_static("authorization, content-type, x-api-key"));
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, headers);
        answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    }
}

/// True if a browser wants the script of a service worker, which would answer for every page of this origin.
pub(crate) fn wants_service_worker(headers: &HeaderMap) -> bool {
    has_fetch_metadata(headers)
        && (headers.contains_key(SERVICE_WORKER) || text(headers, &SEC_FETCH_DEST) == Some("serviceworker"))
}

/// True if a browser says what the request is for. One pass over the few headers of a program costs less than
/// to look up each of these.
fn has_fetch_metadata(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with("sec-fetch-") || *name == SERVICE_WORKER)
}

fn is_loopback(origin: &str) -> bool {
    let host = origin.parse::<Uri>().ok().and_then(|origin| origin.host().map(str::to_owned));
    host.is_some_and(|host| {
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
        host.eq_ignore_ascii_case(LOCALHOST) || address.is_ok_and(|address| address.is_loopback())
    })
}

fn host_of(origin: &str) -> Option<&str> {
    Some(origin.split_once("://")?.1)
}

/// DECISION: names of private domains (`box.lan`, `printer`) are not enough. The network that a laptop is in
/// hands out its search domain and answers for such names, so a page of that network could point one at this
/// machine.
fn is_own_name(authority: &str, hostname: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(_) => return true,
        None => authority.split(':').next().unwrap_or_default(),
    };
    let host = host.trim_end_matches('.');
    // Browsers resolve everything below `localhost` themselves (RFC 6761).
    let below = host.len().checked_sub(LOCALHOST.len()).and_then(|at| host.split_at_checked(at));
    below.is_some_and(|(name, top)| {
        top.eq_ignore_ascii_case(LOCALHOST) && (name.is_empty() || name.ends_with('.'))
    }) || host.parse::<std::net::Ipv4Addr>().is_ok()
        || (!host.is_empty() && host.eq_ignore_ascii_case(hostname))
}

/// The page came from this server itself.
fn is_own(origin: &str, headers: &HeaderMap) -> bool {
    let own = text(headers, &header::HOST);
    own.is_some() && host_of(origin) == own
}

/// The name that stands for a model in the host of its origin, if the request is for one.
pub(crate) fn engine_label(host: Option<&HeaderValue>) -> Option<&str> {
    // Most hosts are shorter than the domain.
    let host = host.filter(|host| host.len() >= ENGINES.len())?.to_str().ok()?;
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_end_matches('.');
    let at = name.len().checked_sub(ENGINES.len())?;
    let (label, domain) = name.split_at_checked(at)?;
    domain.eq_ignore_ascii_case(ENGINES).then_some(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(origins: &Origins, changes: bool, origin: &'static str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("box.lan:8080"));
        headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
        origins.permit(changes, &headers)
    }

    #[test]
    fn a_page_of_another_origin_may_neither_act_nor_read() {
        let origins = Origins::Own;
        for changes in [true, false] {
            for own in ["http://box.lan:8080", "https://box.lan:8080"] {
                assert!(permits(&origins, changes, own), "{own}");
            }
            for foreign in [
                "https://evil.example",
                "http://localhost:3000",
                "http://127.0.0.1",
                "https://[::1]:1",
                "http://box.lan:8081",
                "http://a.engine.localhost:8080",
                "null",
                "",
            ] {
                assert!(!permits(&origins, changes, foreign), "{foreign}");
            }
            assert!(permits(&Origins::Any, changes, "https://evil.example"));
            let these = Origins::These(vec!["http://localhost:3000".to_owned()]);
            assert!(permits(&these, changes, "http://localhost:3000"));
            assert!(!permits(&these, changes, "http://localhost:3001"));
            let machine = Origins::These(vec!["localhost".to_owned()]);
            for (origin, is_permitted) in [
                ("http://localhost:3001", true),
                ("https://[::1]:1", true),
                ("http://127.0.0.1", true),
                ("http://a.engine.localhost:8080", false),
                ("http://localhost.evil.example", false),
                ("http://127.0.0.1.nip.io", false),
                ("null", false),
            ] {
                assert_eq!(permits(&machine, changes, origin), is_permitted, "{origin}");
            }
        }
    }

    #[test]
    fn without_an_origin_only_a_link_leads_here_from_another_site() {
        let asks = |changes: bool, lines: &[(HeaderName, &'static str)]| {
            let lines = lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
            Origins::Own.permit(changes, &lines.collect())
        };
        assert!(asks(true, &[]), "a program");
        for site in ["none", "same-origin"] {
            assert!(asks(true, &[(SEC_FETCH_SITE, site), (SEC_FETCH_MODE, "no-cors")]));
        }
        for site in ["cross-site", "same-site"] {
            let from = (SEC_FETCH_SITE, site);
            let link = [from.clone(), (SEC_FETCH_MODE, "navigate"), (SEC_FETCH_DEST, "document")];
            assert!(asks(false, &link) && !asks(true, &link), "a link that unloads");
            for (mode, dest) in [("no-cors", "image"), ("navigate", "iframe"), ("websocket", "websocket")] {
                let lines = [from.clone(), (SEC_FETCH_MODE, mode), (SEC_FETCH_DEST, dest)];
                assert!(!asks(false, &lines) && !asks(true, &lines), "{site} {mode} {dest}");
            }
        }
    }

    #[test]
    fn a_public_name_that_points_here_is_not_ours_unless_allowed() {
        let asks = |origins: &Origins, host: &'static str| {
            origins.permit_host(Some(&HeaderValue::from_static(host)), "Box")
        };
        for own in ["localhost:8080", "127.0.0.1", "[::1]:8080", "box", "BOX:8080", "a.localhost."] {
            assert!(asks(&Origins::Own, own), "{own}");
        }
        for foreign in [
            "evil.example:8080",
            "127.0.0.1.nip.io",
            "localhost.evil.example",
            "xlan.example",
            "box.lan:8080",
            "printer:8080",
        ] {
            assert!(!asks(&Origins::Own, foreign), "{foreign}");
        }
        let these = Origins::These(vec!["https://app.example".to_owned()]);
        assert!(asks(&these, "app.example"));
        assert!(!asks(&these, "evil.example"));
        assert!(asks(&Origins::Any, "evil.example"));
        assert!(Origins::Own.permit_host(None, ""));
    }

    #[test]
    fn only_an_allowed_page_may_read_the_answer() {
        let granted = |origins: &Origins, origin| {
            let mut answer = HeaderMap::new();
            origins.grant(Some(&HeaderValue::from_static(origin)), &mut answer);
            assert_eq!(answer[header::VARY], "origin");
            answer.get(header::ACCESS_CONTROL_ALLOW_ORIGIN).cloned()
        };
        let these = Origins::These(vec!["https://app.example".to_owned()]);
        assert_eq!(granted(&these, "https://app.example").unwrap(), "https://app.example");
        assert_eq!(granted(&these, "https://evil.example"), None);
        assert_eq!(granted(&Origins::Own, "http://localhost:1"), None);
    }

    #[test]
    fn a_host_below_the_domain_names_a_model_and_no_other_does() {
        let read =
            |host: &'static str| engine_label(Some(&HeaderValue::from_static(host))).map(str::to_owned);
        assert_eq!(read("qwen3-4b.engine.localhost:8080").as_deref(), Some("qwen3-4b"));
        assert_eq!(read("A.Engine.LocalHost.").as_deref(), Some("A"));
        assert_eq!(read(".engine.localhost").as_deref(), Some(""));
        for host in
            ["engine.localhost:8080", "localhost", "a.engine.localhost.evil.example", "127.0.0.1:80", ""]
        {
            assert_eq!(read(host), None, "{host}");
        }
    }
}
