"""Make, list or check icestream's topics in Kafka.

  icestream topics create --partitions 12 --replication 3
  icestream topics list
  icestream topics check

`create` makes missing topics with their retention, and leaves existing ones as they are. `check` says what is wrong,
and ends with exit code 1, if a topic is missing, does not fit the others, has the timestamps of senders, takes no
messages, or loses acknowledged messages with one broker. Beside `create`, only `icestream up` makes topics; no command
changes one.
"""

import argparse
import time

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic, ResourceType  # type: ignore[attr-defined]

from icestream.cli import CommandError, positive
from icestream.kafka.clients import admin_client, is_in_process
from icestream.settings import KafkaSettings
from icestream.topics import OPTIONAL_TOPICS, TIMESTAMP_TYPE, TOPICS

_OF_TOPIC = ConfigSource.DYNAMIC_TOPIC_CONFIG.value  # not of the broker, and no default
_TIMEOUT_S = 15.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["create", "list", "check"], help="what to do")
    parser.add_argument(
        "--partitions",
        type=positive,
        default=4,
        help="partitions of each topic that is made (default: 4)",
        metavar="N",
    )
    parser.add_argument(
        "--replication",
        type=positive,
        help="replicas of each topic that is made (default: 3, or the number of brokers if there are fewer)",
        metavar="N",
    )
    parser.add_argument(
        "--min-insync-replicas",
        type=positive,
        help="replicas that must have a message before it is acknowledged (default: 2; 1 with fewer than 3 replicas)",
        metavar="N",
    )
    KafkaSettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    settings = KafkaSettings.from_args(args)
    try:
        if args.action == "create":
            names = create(settings, args.partitions, args.replication, args.min_insync_replicas)
            print(f"made {', '.join(names)}" if names else "nothing to make: all topics exist")
        if args.action == "list":
            _print_list(settings)
            return 0
        problems = check(settings) + weaknesses(settings)
    except KafkaException as error:
        raise CommandError(f"Kafka at {settings.kafka}: {error.args[0].str()}") from None
    for problem in problems:
        print(problem)
    if not problems and args.action == "check":
        print(f"all {len(TOPICS)} topics exist and fit each other")
    return 1 if problems else 0


def create(
    settings: KafkaSettings, partitions: int, replication: int | None = None, min_insync_replicas: int | None = None
) -> list[str]:
    """Makes the topics that are missing; returns their names. None: the defaults. Raises KafkaException, CommandError.

    The in-process broker makes a topic when a client asks for its metadata; there is no other way.
    """
    with admin_client(settings) as admin:
        metadata = admin.list_topics(timeout=_TIMEOUT_S)
        replication = replication or min(3, len(metadata.brokers))
        min_insync = min_insync_replicas or (2 if replication >= 3 else 1)
        if min_insync > replication:
            raise CommandError(f"expected --min-insync-replicas up to --replication, {replication}, got {min_insync}")
        missing = [topic for topic in (*TOPICS, *OPTIONAL_TOPICS) if topic.name not in metadata.topics]
        if is_in_process(admin, _TIMEOUT_S):
            for topic in missing:
                admin.list_topics(topic.name, timeout=_TIMEOUT_S)
            return [topic.name for topic in missing]
        if not missing:
            return []
        config = {topic.name: topic.config(min_insync) for topic in missing}
        topics = [NewTopic(name, partitions, replication, config=of_topic) for name, of_topic in config.items()]
        return make(admin, topics)


def make(admin: AdminClient, topics: list[NewTopic]) -> list[str]:
    """Makes topics, but for those that exist; returns the names of those that it made. Raises KafkaException."""
    created = []
    for name, creation in admin.create_topics(topics, operation_timeout=_TIMEOUT_S).items():
        try:
            creation.result()
            created.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process was quicker
                raise
    _wait_until_known(admin, {topic.topic for topic in topics})
    return created


def existing(admin: AdminClient) -> dict[str, NewTopic]:
    """Returns our topics that exist, by name, each as one would make it again. Raises KafkaException."""
    found = admin.list_topics(timeout=_TIMEOUT_S).topics
    ours = [topic.name for topic in (*TOPICS, *OPTIONAL_TOPICS) if topic.name in found and found[topic.name].partitions]
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in ours]
    answers = admin.describe_configs(resources, request_timeout=_TIMEOUT_S) if ours else {}
    topics = {}
    for resource, answer in answers.items():
        config = {entry.name: str(entry.value) for entry in answer.result().values() if entry.source == _OF_TOPIC}
        replicas = [len(partition.replicas) for partition in found[resource.name].partitions.values()]
        topics[resource.name] = NewTopic(resource.name, len(replicas), min(replicas), config=config)
    return topics


def _wait_until_known(admin: AdminClient, names: set[str]) -> None:
    """Brokers learn of a topic a moment after the controller made it."""
    deadline = time.monotonic() + _TIMEOUT_S
    while not names <= set(admin.list_topics(timeout=_TIMEOUT_S).topics) and time.monotonic() < deadline:
        time.sleep(0.05)


def check(settings: KafkaSettings) -> list[str]:
    """Problems of the topics, one sentence each. Raises KafkaException."""
    partitions = _replicas(settings)
    missing = [topic.name for topic in TOPICS if topic.name not in partitions]
    problems = [f"{name}: missing; run `icestream topics create`" for name in missing]
    per_host = {
        topic.name: len(partitions[topic.name])
        for topic in (*TOPICS, *OPTIONAL_TOPICS)
        if topic.per_host and topic.name in partitions
    }
    if len(set(per_host.values())) > 1:
        counts = ", ".join(f"{name} has {count}" for name, count in per_host.items())
        problems.append(f"topics that are keyed by host need the same number of partitions, but {counts}")
    for name, config in _config(settings, list(partitions)).items():
        policy, min_insync = config["cleanup.policy"], int(config["min.insync.replicas"])
        replicas = min(partitions[name])
        if policy != "delete":
            problems.append(f"{name}: cleanup.policy is {policy}; compaction would drop all but a host's last message")
        if (kind := config["message.timestamp.type"]) != TIMESTAMP_TYPE:
            problems.append(
                f"{name}: message.timestamp.type is {kind}, so a host whose clock is wrong decides which times are"
                f" plausible, and when Kafka deletes messages; set it: kafka-configs.sh --alter --entity-type topics"
                f" --entity-name {name} --add-config message.timestamp.type={TIMESTAMP_TYPE}"
            )
        if min_insync > replicas:
            problems.append(
                f"{name}: Kafka takes no message: min.insync.replicas is {min_insync}, but replicas are {replicas}"
            )
    return problems


def weaknesses(settings: KafkaSettings) -> list[str]:
    """Topics that lose acknowledged messages if one broker is lost, although there are others; one sentence each.

    Producers ask for acks=all, but "all" are the replicas that are in sync at that moment: at least
    min.insync.replicas. Raises KafkaException.
    """
    with admin_client(settings) as admin:
        brokers = len(admin.list_topics(timeout=_TIMEOUT_S).brokers)
    replicas = {name: min(counts) for name, counts in _replicas(settings).items()}
    configs = _config(settings, list(replicas))
    found = (weakness(name, replicas[name], int(configs[name]["min.insync.replicas"]), brokers) for name in configs)
    return [sentence for sentence in found if sentence]


def weakness(name: str, replicas: int, min_insync_replicas: int, brokers: int) -> str:
    """Why a topic loses acknowledged messages with one of its brokers, as a sentence; "" if it does not."""
    if brokers > 1 and replicas == 1:
        return (
            f"{name}: has 1 replica, so messages are lost with its broker; add replicas: kafka-reassign-partitions.sh"
        )
    if replicas > 1 and min_insync_replicas == 1:
        return (
            f"{name}: min.insync.replicas is 1, so a message may be acknowledged that only one broker has; set it: "
            f"kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config min.insync.replicas=2"
        )
    return ""


def _print_list(settings: KafkaSettings) -> None:
    partitions = _replicas(settings)
    configs = _config(settings, list(partitions))
    print(f"{'topic':28} {'partitions':>10} {'replicas':>8} {'in sync':>7} {'retention':>12}")
    for topic in (*TOPICS, *OPTIONAL_TOPICS):
        if topic.name not in partitions:
            print(f"{topic.name:28} {'missing':>10}")
            continue
        counts = partitions[topic.name]
        config = configs.get(topic.name)
        days = f"{int(config['retention.ms']) / 86_400_000:.4g} days" if config else "in memory"
        least = f">= {config['min.insync.replicas']}" if config else ""
        print(f"{topic.name:28} {len(counts):>10} {min(counts):>8} {least:>7} {days:>12}")


def _replicas(settings: KafkaSettings) -> dict[str, list[int]]:
    """The number of replicas of each partition of each of our topics that exists."""
    with admin_client(settings) as admin:
        existing = admin.list_topics(timeout=_TIMEOUT_S).topics
    return {
        topic.name: [len(partition.replicas) for partition in existing[topic.name].partitions.values()]
        for topic in (*TOPICS, *OPTIONAL_TOPICS)
        if topic.name in existing
    }


def _config(settings: KafkaSettings, names: list[str]) -> dict[str, dict[str, str]]:
    """The configuration of the named topics; nothing on the in-process broker, which has none."""
    with admin_client(settings) as admin:
        if not names or is_in_process(admin, _TIMEOUT_S):
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        answers = admin.describe_configs(resources, request_timeout=_TIMEOUT_S)
        return {
            resource.name: {key: str(entry.value) for key, entry in answer.result().items()}
            for resource, answer in answers.items()
        }
