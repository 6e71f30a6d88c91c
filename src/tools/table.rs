//! A table, padded by display width.

use crate::{
    output::Output,
    text::{cut, width},
};

/// The space between columns.
const GAP: usize = 3;

/// Rows under headings.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()] }
    }

    /// Adds a row. Its cells must be escaped.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Prints it, cut to the width of a terminal.
    pub(crate) fn print(&self, output: &mut Output) -> std::io::Result<()> {
        for line in self.lines(output.columns()) {
            output.line(&line)?;
        }
        Ok(())
    }

    fn lines(&self, columns: Option<usize>) -> impl Iterator<Item = String> {
        let count = self.rows[0].len();
        let widths: Vec<_> = (0..count)
            .map(|at| self.rows.iter().map(|row| width(&row[at])).max().unwrap_or(0))
            .collect();
        self.rows.iter().map(move |row| {
            let mut line = String::new();
            for (cell, widest) in row.iter().zip(&widths) {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', widest - width(cell) + GAP));
            }
            let line = line.trim_end();
            columns.map_or(line, |columns| cut(line, columns)).to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_padded_by_display_width_and_lines_cut_to_the_terminal() {
        let mut table = Table::new(&["RESOURCE", "MODE"]);
        table.row(vec!["名前".into(), "exclusive".into()]);
        let whole: Vec<_> = table.lines(None).collect();
        assert_eq!(whole, ["RESOURCE   MODE", "名前       exclusive"]);
        let cut: Vec<_> = table.lines(Some(14)).collect();
        assert_eq!(cut, ["RESOURCE   MOD", "名前       exc"]);
    }
}
