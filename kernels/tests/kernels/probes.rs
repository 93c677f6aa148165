//! The programs that measure the limits of a CPU.

use rope_cpu_kernels::{
    Cpu,
    probe::{f32_fma, int8_dot, read},
};

use crate::common::on_every_isa;

fn every_byte_is_read_once(cpu: Cpu) {
    for length in [0, 1, 63, 64, 255, 256, 257, 1024, 5000] {
        let bytes: Vec<u8> = (0..length).map(|i| (i * 37 % 251) as u8).collect();
        let expected = bytes.iter().fold(0, |a, b| a ^ b);
        assert_eq!(read(cpu, &bytes), expected, "{cpu:?}, {length} bytes");
    }
}

fn operations_are_those_of_the_rounds(cpu: Cpu) {
    for program in [int8_dot, f32_fma] {
        assert_eq!(program(cpu, 0), 0, "{cpu:?}");
        assert_eq!(program(cpu, 10), 10 * program(cpu, 1), "{cpu:?}");
    }
}

on_every_isa!(every_byte_is_read_once, operations_are_those_of_the_rounds);
