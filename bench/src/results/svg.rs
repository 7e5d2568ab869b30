//! The plot: one bar a case, a line where both sides would be equal.

use super::{Report, push};
use crate::measure::float;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 220.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 74.0;
const ROW: f64 = 28.0;
const BOTTOM: f64 = 56.0;

/// A horizontal bar for the plotted ratio of each case.
pub fn bars(report: &Report) -> String {
    // A case that has no such figure has no bar.
    let values: Vec<(String, f64)> = report
        .cases
        .iter()
        .filter_map(|case| Some((case.label(), case.ratio(report.plotted)?)))
        .collect();
    let longest = values.iter().map(|(_, value)| *value).fold(1.0, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / (longest * 1.05);
    let bottom = TOP + ROW * float(values.len() as u64);
    let height = bottom + BOTTOM;
    let mut out = String::new();
    push(
        &mut out,
        format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        ),
    );
    let title = format!("{} ({}): {}, more is better", report.name, report.mode, report.plotted);
    text(&mut out, (16.0, 26.0), "start", "font-weight=\"bold\" font-size=\"15\"", &title);
    text(&mut out, (16.0, 48.0), "start", "fill=\"#555555\"", &report.work);
    for ((label, value), row) in values.iter().zip(0u64..) {
        let y = TOP + ROW * float(row);
        text(&mut out, (LEFT - 10.0, y + 17.0), "end", "", label);
        let long = (value * scale).max(1.0);
        push(
            &mut out,
            format_args!(
                "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{long:.1}\" height=\"18\" \
                 fill=\"#3b7a57\"/>\n",
                y + 4.0
            ),
        );
        text(&mut out, (LEFT + long + 6.0, y + 17.0), "start", "", &format!("{value:.3}"));
    }
    let even = LEFT + scale;
    push(
        &mut out,
        format_args!(
            "<line x1=\"{even:.1}\" y1=\"{TOP}\" x2=\"{even:.1}\" y2=\"{bottom}\" \
             stroke=\"#b03030\" stroke-dasharray=\"4 3\"/>\n"
        ),
    );
    text(&mut out, (even, bottom + 16.0), "middle", "fill=\"#b03030\"", "1.0 = as fast");
    let machine = report.machine.line();
    let style = "fill=\"#555555\" font-size=\"11\"";
    text(&mut out, (16.0, height - 12.0), "start", style, &machine);
    out.push_str("</svg>\n");
    out
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, style: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    push(
        out,
        format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {style}>{words}</text>\n"
        ),
    );
}
