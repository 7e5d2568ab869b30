//! The two text formats of metrics: `OpenMetrics`, and the one from before it, which every tool reads.

/// What a page in the format of `OpenMetrics` is sent as.
pub const OPENMETRICS_KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// What is sent to clients that do not ask for that.
pub const PLAIN_KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of metrics for a client that sent this `accept` header, and what it is sent as. The page is given in the
/// format of `OpenMetrics`.
pub fn exposition(page: String, accept: &str) -> (&'static str, String) {
    // Either is good where a client likes both as much; the newer one says more.
    let wanted = weight(accept, &["application/openmetrics-text"]);
    if wanted > 0.0 && wanted >= weight(accept, &["text/plain", "text/*", "*/*"]) {
        (OPENMETRICS_KIND, page)
    } else {
        (PLAIN_KIND, plain(&page))
    }
}

/// How much an `accept` header wants a kind, from 0 to 1, by the first of these names that it has.
fn weight(accept: &str, names: &[&str]) -> f32 {
    let of = |name: &&str| {
        accept.split(',').find_map(|range| {
            let mut words = range.split(';').map(str::trim);
            let is_it = words.next().is_some_and(|kind| kind.eq_ignore_ascii_case(name));
            let weight = |(_, weight): (&str, &str)| weight.parse().unwrap_or(0.0);
            // A weight that is no number is none.
            let mut settings = words.filter_map(|word| word.split_once('='));
            let given = || settings.find(|(key, _)| key.eq_ignore_ascii_case("q"));
            is_it.then(given).map(|given| given.map_or(1.0, weight))
        })
    };
    names.iter().find_map(of).unwrap_or(0.0)
}

/// A page of `OpenMetrics` in the format from before it: a name there is that of its samples, and neither `info` nor an
/// end of the page is known.
fn plain(page: &str) -> String {
    let mut plain = String::with_capacity(page.len());
    let mut help = "";
    for line in page.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(_), Some(text)) => help = text,
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    kind => ("", kind),
                };
                let about = [("HELP", help), ("TYPE", kind)];
                for (what, text) in about {
                    plain.extend(["# ", what, " ", name, suffix, " ", text, "\n"]);
                }
            }
            (Some("#"), ..) => {}
            _ => plain.extend([line, "\n"]),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_client_that_asks_for_openmetrics_gets_it() {
        let page = "# HELP a_b Things.\n# TYPE a_b counter\na_b_total 1\n# HELP c Which.\n# TYPE c info\n\
                    c_info{v=\"1\"} 1\n# EOF\n";
        let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2";
        assert_eq!(exposition(page.to_owned(), accept), (OPENMETRICS_KIND, page.to_owned()));
        let plain = "# HELP a_b_total Things.\n# TYPE a_b_total counter\na_b_total 1\n\
                     # HELP c_info Which.\n# TYPE c_info gauge\nc_info{v=\"1\"} 1\n";
        for accept in [
            "application/openmetrics-text",
            "text/plain;q=0.5, Application/OpenMetrics-Text; q=0.5",
        ] {
            assert_eq!(exposition(page.to_owned(), accept).0, OPENMETRICS_KIND, "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/plain",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text; version=1.0.0; Q=0.0, */*",
            "application/openmetrics-text;q=0.2, text/plain;q=0.7",
            "application/openmetrics-text-of-another-kind",
        ] {
            assert_eq!(
                exposition(page.to_owned(), accept),
                (PLAIN_KIND, plain.to_owned()),
                "{accept}"
            );
        }
    }
}
