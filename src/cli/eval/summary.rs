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
    /// The score of each sample by its number, for each task. Tasks count alike.
    scores: Vec<Vec<Option<f64>>>,
}

/// A paired comparison with the first method at the same length.
pub struct Comparison {
    /// The mean difference, of several tasks the mean of their mean differences.
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
                    Cell::new(vec![records.iter().map(score).collect()], seconds)
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
                let tasks = cell.scores.iter().zip(&self.cells[0][length].scores);
                let differences = tasks.map(|(own, first)| {
                    let pairs = own.iter().zip(first);
                    pairs.filter_map(|(own, first)| Some((*own)? - (*first)?)).collect()
                });
                let differences = balanced(differences.collect());
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
    fn new(scores: Vec<Vec<Option<f64>>>, seconds: f64) -> Self {
        let known = scores.iter().map(|task| task.iter().flatten().copied().collect());
        let known: Vec<Vec<f64>> = known.collect();
        let tasks: Vec<&[f64]> = known.iter().map(Vec::as_slice).collect();
        let interval = Interval::of_groups(&tasks);
        let count = known.iter().map(Vec::len).sum();
        Cell { count, interval, comparison: None, seconds, scores }
    }
}

/// Scales the values of each group so that the mean of all is the mean of the groups' means. The test of
/// pairs flips signs, so it holds for any scale.
fn balanced(groups: Vec<Vec<f64>>) -> Vec<f64> {
    let groups: Vec<Vec<f64>> = groups.into_iter().filter(|group| !group.is_empty()).collect();
    let share = groups.iter().map(Vec::len).sum::<usize>() as f64 / groups.len() as f64;
    let scaled = groups.into_iter().flat_map(|group| {
        let scale = share / group.len() as f64;
        group.into_iter().map(move |value| value * scale)
    });
    scaled.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(tasks: &[&[f64]]) -> Cell {
        let tasks = tasks.iter().map(|scores| scores.iter().copied().map(Some).collect());
        Cell::new(tasks.collect(), 1.0)
    }

    fn table(scores: [&[f64]; 3]) -> Table {
        let cells = scores.map(|scores| vec![cell(&[scores])]);
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

    /// 40 needles and 5 questions: pooled, the questions would count an eighth of the needles.
    #[test]
    fn tasks_with_few_samples_count_like_others() {
        let first = cell(&[&[1.0; 40], &[0.0; 5]]);
        assert_eq!((first.count, first.interval.mean), (45, 0.5));
        let other = cell(&[&[1.0; 40], &[1.0, 1.0, 1.0, 0.0, 0.0]]);
        let mut table = Table {
            task: "average".into(),
            metric: "found",
            samples: 45,
            cells: vec![vec![first], vec![other]],
        };
        table.compare();
        let cell = &table.cells[1][0];
        let comparison = cell.comparison.as_ref().unwrap();
        assert!((cell.interval.mean - 0.8).abs() < 1e-12, "{}", cell.interval.mean);
        assert!((comparison.difference - 0.3).abs() < 1e-12, "{}", comparison.difference);
        // Three pairs differ: 2 of 8 signs.
        assert_eq!(comparison.probability, 0.25);
        // All needles are found, so only questions are uncertain: 0.5 + 0.6 / 2 less at most half.
        assert!(cell.interval.low >= 0.5 && cell.interval.high <= 1.0);
    }
}
