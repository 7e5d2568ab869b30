//! The budget as a bar with its water marks.

use console::style;
use secateur_core::{Pressure, PruneStatus, WaterMarks, format_bytes};

use super::words::percent;

const FULL: char = '█';
const EMPTY: char = '░';

/// The bar: the used part filled, the rest of the budget empty.
pub(crate) fn bar(used: u64, target: u64, width: usize) -> String {
    // A byte in use shows, and only a full budget fills the bar.
    let filled = match place(used, target, width) {
        0 if used > 0 => 1,
        filled => filled,
    };
    (0..width).map(|cell| if cell < filled { FULL } else { EMPTY }).collect()
}

/// The row under the bar: `L`, `H` and `!` stand where the water marks are.
pub(crate) fn marks_row(marks: &WaterMarks, width: usize) -> String {
    let mut row = vec![' '; width];
    for (mark, letter) in [(marks.low, 'L'), (marks.high, 'H'), (marks.hard, '!')] {
        let at = place(mark, marks.target, width).min(width.saturating_sub(1));
        if let Some(cell) = row.get_mut(at) {
            *cell = letter;
        }
    }
    let row: String = row.into_iter().collect();
    row.trim_end().to_owned()
}

/// What the letters under the bar mean.
pub(crate) fn legend(marks: &WaterMarks) -> String {
    format!(
        "L low {}   H high {}   ! hard {}",
        format_bytes(marks.low),
        format_bytes(marks.high),
        format_bytes(marks.hard)
    )
}

/// The marks of a status, if it has a budget.
pub(crate) fn marks(status: &PruneStatus) -> Option<WaterMarks> {
    Some(WaterMarks {
        low: status.low_water_bytes?,
        high: status.high_water_bytes?,
        hard: status.hard_water_bytes?,
        target: status.target_bytes,
    })
}

/// How hard the budget presses, in one word.
pub(crate) const fn state(pressure: Pressure) -> &'static str {
    match pressure {
        Pressure { emergency: true, .. } => "EMERGENCY",
        Pressure { draining: true, .. } => "draining",
        _ => "steady",
    }
}

/// The same word in colour, where there is colour; a full disk outranks the budget.
pub(crate) fn styled_state(status: &PruneStatus) -> String {
    if status.disk_full {
        return style("DISK FULL").red().bold().to_string();
    }
    let pressure = status.pressure;
    let word = style(state(pressure));
    match pressure {
        Pressure { emergency: true, .. } => word.red().bold(),
        Pressure { draining: true, .. } => word.yellow(),
        _ => word.green(),
    }
    .to_string()
}

/// Used bytes against the budget: `20.1 MiB of 24.0 MiB (83.9 %)`.
pub(crate) fn used(status: &PruneStatus) -> String {
    if status.target_bytes == 0 {
        return format!("{} (no budget)", format_bytes(status.used_bytes));
    }
    format!(
        "{} of {} ({})",
        format_bytes(status.used_bytes),
        format_bytes(status.target_bytes),
        percent(status.used_bytes, status.target_bytes)
    )
}

/// The cell of a bar that `bytes` reach.
fn place(bytes: u64, target: u64, width: usize) -> usize {
    let cell = (u128::from(bytes) * width as u128).checked_div(u128::from(target)).unwrap_or(0);
    usize::try_from(cell).unwrap_or(width).min(width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_with_the_budget_and_never_overflows() {
        let filled = |used| bar(used, 100, 10).chars().filter(|c| *c == FULL).count();
        let cells: Vec<usize> = [0, 1, 50, 99, 100, 500].map(filled).into();
        assert_eq!(cells, [0, 1, 5, 9, 10, 10]);
        assert_eq!(bar(5, 0, 3), "█░░");
    }

    #[test]
    fn the_marks_stand_under_their_share_of_the_bar() {
        let marks = WaterMarks { low: 80, high: 90, hard: 95, target: 100 };
        assert_eq!(marks_row(&marks, 20), "                L H!");
    }
}
