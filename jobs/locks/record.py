"""The record of a job in the table `jobs`: which slices are finished, so that a job that was killed continues."""

from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from jobs.job import Job, JobError
from jobs.locks.fence import Fence
from jobs.staging.staging import DELETE, insert_settings
from jobs.staging.unused_staging import drop_unused_staging
from jobs.time_range import JobTimeRange
from sinks.clickhouse.cluster import delete_from, of_all_replicas

_BEGUN = "begun: "


@dataclass(frozen=True)
class JobRecord:
    """The record of one job."""

    client: Client
    name: str
    fence: Fence

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
        drop_unused_staging(self.client, self.name, self.fence.cluster)
        if not begun:
            self._add(_BEGUN + job.arguments)
        return bool(begun)

    def steps(self) -> set[str]:
        jobs = of_all_replicas("jobs", self.fence.cluster)
        rows = self.client.query(
            f"SELECT step FROM {jobs} WHERE job = {{job:String}}", parameters={"job": self.name}
        ).result_rows
        return {str(step) for (step,) in rows}

    def finish(self, part: JobTimeRange) -> None:
        """Records that a slice is finished."""
        self._add(_step(part))

    def is_finished(self, part: JobTimeRange, steps: set[str]) -> bool:
        return _step(part) in steps

    def forget(self) -> None:
        """Removes the record."""
        self.client.command(
            f"{delete_from('jobs', self.fence.cluster)} WHERE job = {{job:String}} AND {self.fence.condition}",
            parameters={"job": self.name},
            settings=DELETE | self.fence.settings,
        )

    def _add(self, step: str) -> None:
        self.client.command(
            f"INSERT INTO jobs (job, step) SELECT {{job:String}}, {{step:String}} WHERE {self.fence.condition}",
            parameters={"job": self.name, "step": step},
            settings=insert_settings(self.fence.cluster) | self.fence.settings,
        )


def _step(part: JobTimeRange) -> str:
    return f"finished {part.start_unix_nano} {part.end_unix_nano}"
