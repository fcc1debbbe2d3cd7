"""Scale: what a claim and its ack cost the engine beside a long queue and beside a long history."""

from __future__ import annotations

from benchmarks.frame import Config, Failed, Row, Samples
from benchmarks.processes import python, run_json

NAME = "scale"
ABOUT = "claim and ack beside a million queued and a million finished jobs"
EMPTY = "empty"
FLAT = 1.3


def run(config: Config) -> list[Row]:
    wall, cost = Samples(), Samples()
    queued, finished = f"{config.scale:,} queued", f"{config.scale:,} finished"
    for number in range(config.rounds):
        config.say(f"scale to {config.scale:,} jobs, round {number + 1}: minutes")
        try:
            with config.scratch() as folder:
                env = {"BENCH_STORE": str(folder / "bench.db")}
                found = run_json(python("-m", "benchmarks.programs.scale", str(config.scale)), env, within=1800)
        except Failed as error:
            wall.fail(EMPTY, str(error))
            continue
        for name, key in ((EMPTY, "empty"), (queued, "queued"), (finished, "finished")):
            wall.add(name, number, found[key]["wall"])
            cost.add(name, number, found[key]["cpu"])
    return [
        *wall.rows("claim and ack, batch 64", "us/job"),
        *cost.rows("claim and ack, batch 64, CPU", "us/job"),
        cost.ratio("claim and ack, CPU", queued, EMPTY, at_most=FLAT),
        cost.ratio("claim and ack, CPU", finished, EMPTY, at_most=FLAT),
    ]
