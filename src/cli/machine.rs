//! `rope-cpu machine`: the processors, caches, memory and peak rates of the machine.

use std::io::Write;

use comfy_table::{CellAlignment, Table, presets};
use rope_cpu_kernels::Cpu;
use serde_json::{Value as Json, json};

use super::{args::MachineArgs, error::Error};
use rope_cpu::{
    eval::probe::{self, Probes},
    model::memory::Bytes,
    platform::{
        memory,
        processors::{self, Threads},
        topology::{self, Cache, Topology},
    },
    threads,
};

/// Show the processors, memory and peak speeds of this machine
///
/// Prints processors, caches, memory and instruction sets; the default number of threads and the
/// reason for it; and the peak rates, measured in about three seconds by three fixed programs that
/// need no model:
///
/// read: reads a buffer of 512 MiB (or a quarter of the available memory, if that is less) in four
/// streams per thread. Generating a token reads nearly all weights of a model once.
///
/// int8: independent dot products of bytes in the L1 cache, the inner step of products with
/// quantized weights. Reading a prompt token takes two such operations for each weight. AVX2
/// multiplies weights of six bits and fewer faster than bytes, so that a prompt can exceed this
/// peak with such weights.
///
/// f32: independent multiply-adds of floats in the L1 cache, the inner step of attention.
///
/// Each program runs six times, on one thread and then on all threads, and the best run counts.
/// Other processes lower the result, and a last-level cache of more than 512 MiB makes memory
/// appear faster than it is.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    machine: MachineArgs,
}

/// Runs the command.
///
/// # Errors
/// If threads cannot be started, or `out` cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let report = Report::of(args)?;
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &report.json()).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        report.write(out)?;
    }
    Ok(())
}

/// The values that both forms of output show.
struct Report {
    topology: Option<Topology>,
    memory: Option<u64>,
    threads: Threads,
    chosen: Cpu,
    measured: Vec<PeakRates>,
}

/// The peak rates of a number of threads.
struct PeakRates {
    threads: usize,
    probes: Probes,
    /// The int8 peak of every instruction set.
    int8_dot: Vec<(Cpu, f64)>,
}

impl Report {
    fn of(args: &Args) -> Result<Self, Error> {
        let threads = args.machine.threads();
        let chosen = args.machine.cpu();
        let mut counts = vec![1, threads.workers.answers, threads.workers.prompts];
        counts.dedup();
        Ok(Report {
            topology: topology::topology(),
            memory: memory::available().map(|available| available.bytes),
            threads,
            chosen,
            measured: counts
                .into_iter()
                .map(|count| PeakRates::of(count, chosen))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl PeakRates {
    fn of(count: usize, chosen: Cpu) -> Result<Self, Error> {
        let team = threads::Threads::new(count)
            .map_err(|e| Error::failed(format_args!("cannot start {count} threads: {e}")))?;
        let probes = probe::probe(&team, chosen);
        let int8_dot = |cpu: Cpu| match cpu.name() == chosen.name() {
            true => probes.int8_dot,
            false => probe::int8_dot(&team, cpu),
        };
        let int8_dot = Cpu::available().into_iter().rev().map(|cpu| (cpu, int8_dot(cpu))).collect();
        Ok(PeakRates { threads: count, probes, int8_dot })
    }
}

/// The report as text.
impl Report {
    fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let mut has = table();
        if let Some(topology) = &self.topology {
            if let Some(model) = &topology.model {
                has.add_row(["model", model]);
            }
            has.add_row(["processors", &processors(topology)]);
            let caches: Vec<_> = topology.caches.iter().map(cache).collect();
            has.add_row(["caches", &caches.join(", ")]);
        }
        if let Some(memory) = self.memory {
            has.add_row(["memory", &format!("{} available", Bytes(memory))]);
        }
        let isas: Vec<_> = Cpu::available().into_iter().map(Cpu::name).collect();
        has.add_row(["ISA", &format!("{} (usable: {})", self.chosen.name(), isas.join(", "))]);
        let Threads { workers, reason } = &self.threads;
        let count = workers.answers;
        has.add_row(["threads", &format!("{count} ({reason})")]);
        writeln!(out, "{}\n\nPeak rates", has.trim_fmt())?;

        let mut peaks = table();
        let mut row = |name: String, unit: f64, suffix: &str, value: &dyn Fn(&PeakRates) -> f64| {
            let values = self.measured.iter().map(|m| format!("{:.1}", value(m) / unit));
            peaks.add_row([name].into_iter().chain(values).chain([suffix.into()]));
        };
        row("read".into(), 1e9, "GB/s", &|m| m.probes.read_bandwidth);
        for (i, (cpu, _)) in self.measured[0].int8_dot.iter().enumerate() {
            row(format!("int8, {}", cpu.name()), 1e9, "GOPS", &|m| m.int8_dot[i].1);
        }
        let f32_fma = format!("f32, {}", self.chosen.name());
        row(f32_fma, 1e9, "GFLOPS", &|m| m.probes.f32_fma);
        let counts = self.measured.iter().map(|m| processors::plural(m.threads, "thread"));
        peaks.set_header([String::new()].into_iter().chain(counts).chain([String::new()]));
        for column in 1..=self.measured.len() {
            if let Some(column) = peaks.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        writeln!(out, "{}", peaks.trim_fmt())
    }
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table
}

fn processors(topology: &Topology) -> String {
    let plural = processors::plural;
    let mut text = format!(
        "{}, {}, {}",
        plural(topology.packages, "package"),
        plural(topology.cores, "core"),
        plural(topology.processors, "logical processor"),
    );
    if let Some(kinds) = topology.kinds {
        text += &format!("; {} performance, {} efficiency", kinds.performance, kinds.efficiency);
    }
    if topology.allowed < topology.processors {
        text += &format!("; {} allowed to this process", topology.allowed);
    }
    if let Some(quota) = topology.quota {
        text += &format!("; a CPU quota of {quota:.1}");
    }
    text
}

fn cache(cache: &Cache) -> String {
    let times = if cache.count > 1 { format!("{} x ", cache.count) } else { String::new() };
    format!("{} {times}{}", cache.name, Bytes(cache.bytes))
}

/// The report as JSON: sizes in bytes, rates in bytes or operations per second, null if unknown.
impl Report {
    fn json(&self) -> Json {
        let topology = self.topology.as_ref();
        let cache = |c: &Cache| json!({ "name": c.name, "bytes": c.bytes, "count": c.count });
        let measured = |m: &PeakRates| {
            let int8_dot = m.int8_dot.iter().map(|(cpu, rate)| (cpu.name().into(), json!(rate)));
            json!({
                "threads": m.threads,
                "read_bandwidth": m.probes.read_bandwidth,
                "f32_fma": m.probes.f32_fma,
                "int8_dot": Json::Object(int8_dot.collect()),
            })
        };
        json!({
            "topology": topology.map(|t| json!({
                "model": t.model,
                "packages": t.packages,
                "cores": t.cores,
                "performance_cores": t.kinds.map(|kinds| kinds.performance),
                "efficiency_cores": t.kinds.map(|kinds| kinds.efficiency),
                "processors": t.processors,
                "processors_allowed": t.allowed,
                "cpu_quota": t.quota,
                "caches": t.caches.iter().map(cache).collect::<Vec<_>>(),
            })),
            "memory_available": self.memory,
            "isa": self.chosen.name(),
            "isas": Cpu::available().into_iter().map(Cpu::name).collect::<Vec<_>>(),
            "threads": self.threads.workers.answers,
            "threads_batch": self.threads.workers.prompts,
            "threads_reason": self.threads.reason,
            "measured": self.measured.iter().map(measured).collect::<Vec<_>>(),
        })
    }
}
