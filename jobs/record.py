"""The record of a job in the table `jobs`: which slices are finished, so that a job that was killed continues."""

from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from jobs.job import Job, JobError
from jobs.staging import DELETE, drop_staging, insert_settings
from jobs.time_range import TimeRange

_BEGUN = "begun: "


@dataclass(frozen=True)
class Record:
    """The record of one job."""

    client: Client
    name: str

    def begin(self, job: Job) -> bool:
        """Returns whether the job continues an earlier run. Raises JobError if that had other arguments."""
        if job.restart:
            self.forget()
        begun = [step.removeprefix(_BEGUN) for step in self.steps() if step.startswith(_BEGUN)]
        if begun and begun[0] != job.arguments:
            raise JobError(
                f"the unfinished job {self.name} has other arguments ({begun[0]}): "
                "give another --name, or --restart to forget what it has done"
            )
        if not begun:
            drop_staging(self.client, self.name)
            self._add(_BEGUN + job.arguments)
        return bool(begun)

    def steps(self) -> set[str]:
        rows = self.client.query(
            "SELECT step FROM jobs WHERE job = {job:String}", parameters={"job": self.name}
        ).result_rows
        return {str(step) for (step,) in rows}

    def finish(self, part: TimeRange) -> None:
        """Records that a slice is finished."""
        self._add(_step(part))

    def is_finished(self, part: TimeRange, steps: set[str]) -> bool:
        return _step(part) in steps

    def forget(self) -> None:
        """Removes the record and the staging tables."""
        self.client.command("DELETE FROM jobs WHERE job = {job:String}", parameters={"job": self.name}, settings=DELETE)
        drop_staging(self.client, self.name)

    def _add(self, step: str) -> None:
        self.client.insert("jobs", [[self.name, step]], column_names=["job", "step"], settings=insert_settings())


def _step(part: TimeRange) -> str:
    return f"finished {part.start_unix_nano} {part.end_unix_nano}"
