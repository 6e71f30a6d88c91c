//! A table, padded by display width.

use crate::{
    output::Output,
    text::{cut, width},
};

/// Where nothing is cut, a column is padded to this width at most, so that one long name
/// does not widen every line.
const PADDED_MAX: usize = 64;
/// The space between columns.
const GAP: usize = 3;
/// What stands for the rest of a cell that was cut.
const REST: char = '…';

/// Rows under headings.
pub(crate) struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Self {
        let headings = headings.iter().map(|heading| (*heading).to_owned()).collect();
        Self { headings, rows: Vec::new() }
    }

    /// Adds a row. Its cells must be escaped.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Sorts the rows by their first cells.
    pub(crate) fn sort(&mut self) {
        self.rows.sort();
    }

    /// Prints it, cut to the width of a terminal.
    pub(crate) fn print(&self, output: &mut Output) -> std::io::Result<()> {
        for line in self.lines(output.columns()) {
            output.line(&line)?;
        }
        Ok(())
    }

    fn lines(&self, columns: Option<usize>) -> impl Iterator<Item = String> {
        let rows = || std::iter::once(&self.headings).chain(&self.rows);
        let mut widths: Vec<_> = (0..self.headings.len())
            .map(|at| rows().map(|row| width(&row[at])).max().unwrap_or(0))
            .collect();
        match columns {
            Some(columns) => shrink(&mut widths, columns),
            None => widths.iter_mut().for_each(|width| *width = (*width).min(PADDED_MAX)),
        }
        rows().map(move |row| {
            let mut line = String::new();
            for (cell, widest) in row.iter().zip(&widths) {
                let cell = columns.map_or_else(|| cell.clone(), |_| shortened(cell, *widest));
                line.push_str(&cell);
                let padding = widest.saturating_sub(width(&cell)) + GAP;
                line.extend(std::iter::repeat_n(' ', padding));
            }
            let line = line.trim_end();
            columns.map_or(line, |columns| cut(line, columns)).to_owned()
        })
    }
}

/// Takes columns from the widest of them until the line fits, so that one long name hides no
/// other column.
fn shrink(widths: &mut [usize], columns: usize) {
    let gaps = GAP * widths.len().saturating_sub(1);
    let room = columns.saturating_sub(gaps).max(widths.len());
    let mut excess = widths.iter().sum::<usize>().saturating_sub(room);
    while excess > 0 {
        let widest = widths.iter().copied().max().unwrap_or(0);
        let next = widths.iter().copied().filter(|width| *width < widest).max().unwrap_or(1);
        for width in widths.iter_mut().filter(|width| **width == widest) {
            let taken = (widest - next).min(excess);
            *width -= taken;
            excess -= taken;
        }
    }
}

fn shortened(cell: &str, columns: usize) -> String {
    if width(cell) <= columns {
        return cell.to_owned();
    }
    format!("{}{REST}", cut(cell, columns.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rows: &[[&str; 2]], columns: Option<usize>) -> Vec<String> {
        let mut table = Table::new(&["RESOURCE", "MODE"]);
        for row in rows {
            table.row(row.map(str::to_owned).to_vec());
        }
        table.lines(columns).collect()
    }

    #[test]
    fn columns_are_padded_by_display_width() {
        let whole = lines(&[["名前", "exclusive"]], None);
        assert_eq!(whole, ["RESOURCE   MODE", "名前       exclusive"]);
    }

    #[test]
    fn a_long_cell_is_cut_before_the_others() {
        let cut = lines(&[["a-very-long-name-of-a-resource", "exclusive"]], Some(25));
        assert_eq!(cut, ["RESOURCE        MODE", "a-very-long-…   exclusive"]);
    }

    #[test]
    fn a_long_cell_is_whole_on_a_pipe_and_widens_its_own_line_only() {
        let long = "n".repeat(200);
        let whole = lines(&[[&long, "exclusive"], ["short", "shared"]], None);
        assert_eq!(whole[1], format!("{long}   exclusive"));
        assert_eq!(whole[2], format!("short{}shared", " ".repeat(PADDED_MAX - 5 + GAP)));
    }

    #[test]
    fn a_line_fits_into_the_narrowest_terminal() {
        for columns in 1..20 {
            for line in lines(&[["名前名前", "exclusive"]], Some(columns)) {
                assert!(width(&line) <= columns, "{columns}: {line:?}");
            }
        }
    }
}
