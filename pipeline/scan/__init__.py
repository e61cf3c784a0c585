"""The scan stage: what is in an image, and what is known to be wrong with it, by Trivy.

A scan that found nothing and one that looked at nothing are told apart: each report is proved to be about the image, its
system and all its packages (`report`), and the database to know something of them (`database`).
"""

from pipeline.scan.bench import LEAST_DATABASE, Bench, Result, Subject
from pipeline.scan.stage import exit_code, rescan, rescan_each, scan

__all__ = ["LEAST_DATABASE", "Bench", "Result", "Subject", "exit_code", "rescan", "rescan_each", "scan"]
