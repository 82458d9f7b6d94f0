"""Findings and test results in the formats that other tools read; plain values in, text out."""
