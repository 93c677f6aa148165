//! The means of scores, with intervals and comparisons of methods.

use super::{Answers, MethodRun, Tasks};
use rope_cpu::eval::{
    passkey::effective_window,
    ruler::EFFECTIVE_SHARE,
    statistics::{Interval, holm, paired_test},
};

/// Comparisons with a larger probability of chance are not called better or worse.
pub const SIGNIFICANT: f64 = 0.05;

/// The results of an evaluation.
pub struct Summary {
    /// All methods, in the order of the command line.
    pub methods: Vec<String>,
    /// All lengths, the shortest first.
    pub lengths: Vec<usize>,
    /// A table for each score of each task, and for RULER's average.
    pub tables: Vec<Table>,
    /// For each method the effective length of RULER's average; `None` without a length that reaches
    /// the share. Empty without tasks of RULER.
    pub effective: Vec<Option<usize>>,
}

/// The results of one score.
pub struct Table {
    pub task: String,
    pub metric: &'static str,
    pub samples: usize,
    /// The cells of each method, by length.
    pub cells: Vec<Vec<Cell>>,
}

/// The result of a method at a length.
pub struct Cell {
    pub count: usize,
    pub interval: Interval,
    /// The comparison with the first method; `None` for the first method itself, and for methods that
    /// are equivalent to it.
    pub comparison: Option<Comparison>,
    pub seconds: f64,
    /// The score of each sample, by its number.
    scores: Vec<Option<f64>>,
}

/// A paired comparison with the first method at the same length.
pub struct Comparison {
    /// The mean difference.
    pub difference: f64,
    /// The probability of such a difference by chance, adjusted for all comparisons of the table.
    pub probability: f64,
}

impl Comparison {
    /// Returns `better` or `worse` if the difference is significant.
    pub fn verdict(&self) -> Option<&'static str> {
        let verdict = if self.difference > 0.0 { "better" } else { "worse" };
        (self.probability < SIGNIFICANT).then_some(verdict)
    }
}

impl Summary {
    /// Computes the results of all tasks and runs.
    pub(super) fn new(tasks: &Tasks<'_, '_>, runs: &[MethodRun], answers: &Answers<'_>) -> Self {
        let (mut methods, mut lengths): (Vec<String>, Vec<usize>) = Default::default();
        for run in runs {
            if !methods.contains(&run.method) {
                methods.push(run.method.clone());
            }
            if !lengths.contains(&run.length) {
                lengths.push(run.length);
            }
        }
        let by_method = || {
            methods
                .iter()
                .map(|method| runs.iter().filter(|run| run.method == *method).collect::<Vec<_>>())
        };
        let mut tables = Vec::new();
        for task in &tasks.all {
            for (index, metric) in task.metrics.iter().enumerate() {
                let cell = |run: &&MethodRun| {
                    let records =
                        (0..task.samples).map(|number| answers.of(run, tasks, task, number));
                    let records: Vec<_> = records.collect();
                    let score = |record: &Option<&super::Record>| {
                        record.and_then(|r| r.scores.get(index).copied())
                    };
                    let seconds = records.iter().flatten().map(|record| record.seconds).sum();
                    Cell::new(records.iter().map(score).collect(), seconds)
                };
                let cells = by_method().map(|runs| runs.iter().map(cell).collect()).collect();
                tables.push(Table {
                    task: task.name.clone(),
                    metric,
                    samples: task.samples,
                    cells,
                });
            }
        }
        let of_ruler: Vec<usize> = (0..tables.len())
            .filter(|i| {
                tasks.all.iter().any(|task| task.is_ruler() && task.name == tables[*i].task)
            })
            .collect();
        let mut effective = Vec::new();
        if !of_ruler.is_empty() {
            let cell = |method: usize, length: usize| {
                let cells = of_ruler.iter().map(|i| &tables[*i].cells[method][length]);
                let seconds = cells.clone().map(|cell| cell.seconds).sum();
                Cell::new(cells.flat_map(|cell| cell.scores.clone()).collect(), seconds)
            };
            let cells: Vec<Vec<Cell>> = (0..methods.len())
                .map(|method| (0..lengths.len()).map(|length| cell(method, length)).collect())
                .collect();
            effective = cells
                .iter()
                .map(|cells| {
                    let means = lengths
                        .iter()
                        .zip(cells)
                        .map(|(length, cell)| (*length, cell.interval.mean));
                    effective_window(&means.collect::<Vec<_>>(), EFFECTIVE_SHARE)
                })
                .collect();
            if of_ruler.len() > 1 {
                let task = format!("average of {} tasks of RULER", of_ruler.len());
                let samples = of_ruler.iter().map(|i| tables[*i].samples).sum();
                tables.push(Table { task, metric: "found", samples, cells });
            }
        }
        tables.iter_mut().for_each(Table::compare);
        Summary { methods, lengths, tables, effective }
    }
}

impl Table {
    /// Compares all methods with the first one.
    fn compare(&mut self) {
        let mut compared = Vec::new();
        for (method, cells) in self.cells.iter().enumerate().skip(1) {
            for (length, cell) in cells.iter().enumerate() {
                let pairs = cell.scores.iter().zip(&self.cells[0][length].scores);
                let differences = pairs.filter_map(|(own, first)| Some((*own)? - (*first)?));
                let differences: Vec<f64> = differences.collect();
                if !differences.is_empty() {
                    compared.push((method, length, differences));
                }
            }
        }
        let probabilities: Vec<f64> = compared.iter().map(|(.., all)| paired_test(all)).collect();
        for ((method, length, differences), probability) in
            compared.iter().zip(holm(&probabilities))
        {
            let difference = differences.iter().sum::<f64>() / differences.len() as f64;
            self.cells[*method][*length].comparison = Some(Comparison { difference, probability });
        }
    }
}

impl Cell {
    fn new(scores: Vec<Option<f64>>, seconds: f64) -> Self {
        let known: Vec<f64> = scores.iter().flatten().copied().collect();
        let interval = Interval::of(&known);
        Cell { count: known.len(), interval, comparison: None, seconds, scores }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(scores: [&[f64]; 3]) -> Table {
        let cells =
            scores.map(|scores| vec![Cell::new(scores.iter().copied().map(Some).collect(), 1.0)]);
        let mut table = Table { task: "t".into(), metric: "m", samples: 20, cells: cells.into() };
        table.compare();
        table
    }

    #[test]
    fn a_method_is_better_only_if_chance_is_unlikely() {
        let (none, all, some) = ([0.0; 20], [1.0; 20], [[0.0; 16], [1.0; 16]].concat());
        let found = table([&none, &all, &some[12..]]);
        assert!(found.cells[0][0].comparison.is_none());
        let of = |method: usize| found.cells[method][0].comparison.as_ref().unwrap();
        assert_eq!((of(1).verdict(), of(1).difference), (Some("better"), 1.0));
        // 16 of 20 better, none worse.
        assert_eq!(of(2).verdict(), Some("better"));
        let close = table([&none, &none, &some[..20]]);
        // Four pairs differ: 2 of 16 signs.
        let comparison = close.cells[2][0].comparison.as_ref().unwrap();
        assert_eq!((comparison.verdict(), comparison.probability), (None, 0.25));
        let worse = table([&all, &all, &none]);
        assert_eq!(worse.cells[2][0].comparison.as_ref().unwrap().verdict(), Some("worse"));
    }
}
