"""Make, list or check icestream's topics in Kafka.

  icestream topics create --partitions 12 --replication 3
  icestream topics list
  icestream topics check

`create` makes missing topics with their retention, and leaves existing ones as they are. `check` ends with exit code 1
where a topic is missing or does not fit the others. Nothing else in icestream makes or changes a topic.
"""

import argparse

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from icestream.cli import CommandError
from icestream.kafka import client_config, is_in_process
from icestream.settings import KafkaSettings
from icestream.topics import TOPICS

_TIMEOUT_S = 15.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["create", "list", "check"], help="what to do")
    parser.add_argument(
        "--partitions",
        type=_positive,
        default=4,
        help="partitions of each topic that is made (default: 4)",
        metavar="N",
    )
    parser.add_argument(
        "--replication", type=_positive, default=1, help="replicas of each topic that is made (default: 1)", metavar="N"
    )
    KafkaSettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    settings = KafkaSettings.from_args(args)
    try:
        if args.action == "create":
            names = create(settings, args.partitions, args.replication)
            print(f"made {', '.join(names)}" if names else "nothing to make: all topics exist")
        if args.action == "list":
            _print_list(settings)
            return 0
        problems = check(settings)
    except KafkaException as error:
        raise CommandError(f"Kafka at {settings.kafka}: {error.args[0].str()}") from None
    for problem in problems:
        print(problem)
    if not problems and args.action == "check":
        print(f"all {len(TOPICS)} topics exist and fit each other")
    return 1 if problems else 0


def create(settings: KafkaSettings, partitions: int, replication: int) -> list[str]:
    """Makes the topics that are missing; returns their names. Raises KafkaException.

    The in-process broker makes a topic when a client asks for its metadata; there is no other way.
    """
    admin = AdminClient(client_config(settings))
    missing = [topic for topic in TOPICS if topic.name not in admin.list_topics(timeout=_TIMEOUT_S).topics]
    if is_in_process(admin, _TIMEOUT_S):
        for topic in missing:
            admin.list_topics(topic.name, timeout=_TIMEOUT_S)
        return [topic.name for topic in missing]
    if not missing:
        return []
    topics = [
        NewTopic(topic.name, num_partitions=partitions, replication_factor=replication, config=topic.config)
        for topic in missing
    ]
    created = []
    for name, creation in admin.create_topics(topics, operation_timeout=_TIMEOUT_S).items():
        try:
            creation.result()
            created.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process was quicker
                raise
    return created


def check(settings: KafkaSettings) -> list[str]:
    """Problems of the topics, one sentence each. Raises KafkaException."""
    partitions = _partitions(settings)
    missing = [topic.name for topic in TOPICS if topic.name not in partitions]
    problems = [f"{name}: missing; run `icestream topics create`" for name in missing]
    per_host = {topic.name: partitions[topic.name] for topic in TOPICS if topic.per_host and topic.name in partitions}
    if len(set(per_host.values())) > 1:
        counts = ", ".join(f"{name} has {count}" for name, count in per_host.items())
        problems.append(f"topics that are keyed by host need the same number of partitions, but {counts}")
    for name, policy in _config(settings, list(partitions), "cleanup.policy").items():
        if policy != "delete":
            problems.append(f"{name}: cleanup.policy is {policy}; compaction would drop all but a host's last message")
    return problems


def _print_list(settings: KafkaSettings) -> None:
    partitions = _partitions(settings)
    retention = _config(settings, list(partitions), "retention.ms")
    print(f"{'topic':28} {'partitions':>10} {'retention':>12}")
    for topic in TOPICS:
        if topic.name not in partitions:
            print(f"{topic.name:28} {'missing':>10}")
            continue
        days = f"{int(retention[topic.name]) / 86_400_000:.4g} days" if topic.name in retention else "in memory"
        print(f"{topic.name:28} {partitions[topic.name]:>10} {days:>12}")


def _partitions(settings: KafkaSettings) -> dict[str, int]:
    """Number of partitions of each of our topics that exists."""
    existing = AdminClient(client_config(settings)).list_topics(timeout=_TIMEOUT_S).topics
    return {topic.name: len(existing[topic.name].partitions) for topic in TOPICS if topic.name in existing}


def _config(settings: KafkaSettings, names: list[str], key: str) -> dict[str, str]:
    """A configuration entry of the named topics; nothing on the in-process broker, which has none."""
    admin = AdminClient(client_config(settings))
    if not names or is_in_process(admin, _TIMEOUT_S):
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    answers = admin.describe_configs(resources, request_timeout=_TIMEOUT_S)
    return {resource.name: str(answer.result()[key].value) for resource, answer in answers.items()}


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 up, got {text!r}")
    return int(text)
