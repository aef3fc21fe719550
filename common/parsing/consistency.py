"""Checks for combinations of settings that are each valid but exclude each other."""

from __future__ import annotations

from typing import get_args

from colonnade.common.aggregation.masked_sums import check_blinded
from colonnade.common.config.data.sources import DataConfig
from colonnade.common.config.data.tables import TableColumnsConfig, columns_of
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import ActiveConfig, Config, PartyConfig, ServerConfig
from colonnade.common.config.models import PretrainedConfig, precision_of
from colonnade.common.config.outside import OUTSIDE_LOSSES, check_metric, check_registered, load_function
from colonnade.common.config.privacy import CONVEX, MECHANISMS, AnyPrivacyConfig, StepsConfig
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.config.run_options import OF_NUMBERS, OF_TWO, POISSON, StopMetric
from colonnade.common.contracts.contract import Exchange
from colonnade.common.contracts.registry import CONTRACTS, imported_contracts
from colonnade.common.crypto.curve_library import point_class
from colonnade.common.errors import ConfigError, nearest


def able(trait: str) -> str:
    """The protocols with this capability of their exchange, config or contract, for a hint."""
    holder = "exchange" if hasattr(Exchange, trait) else "config" if hasattr(ProtocolConfig, trait) else ""
    known = ((name, getattr(one, holder) if holder else one) for name, one in imported_contracts().items())
    return ", ".join(name for name, able in known if getattr(able, trait))


def check_privacy(federation: FederationConfig) -> None:
    """Rejects privacy settings that protect nothing, or that the protocol cannot keep. Raises ConfigError."""
    if federation.privacy is not None:
        _check_releases(federation, federation.privacy)
        _check_rows(federation, federation.privacy)
        if federation.privacy.steps is not None:
            _check_steps(federation, federation.privacy.steps)


def _check_releases(federation: FederationConfig, privacy: AnyPrivacyConfig) -> None:
    if privacy.evaluate == "clean" and not federation.benchmark:
        raise ConfigError(
            "federation.privacy.evaluate = clean: validation and test rows would leave unprotected",
            hint="leave it out; or, if the data hold no secrets, set federation.benchmark to true",
        )
    if privacy.evaluate == "none" and not federation.benchmark:
        raise ConfigError(
            "federation.privacy.evaluate = none: evaluations and predictions would know nothing of the parties' rows",
            hint="leave it out; for a measurement of what the parties add, set federation.benchmark to true",
        )
    if privacy.epsilon and federation.protocol.asynchronous:
        raise ConfigError(
            "federation.privacy.epsilon: parties that come when they like make as many releases as they like",
            hint="give noise_multiplier alone, and every party its policy.max_epsilon; or arrivals: false",
        )


def _check_rows(federation: FederationConfig, privacy: AnyPrivacyConfig) -> None:
    """Rejects row protection unless the protocol's messages are one value of the protected kind per row."""
    name, sends = federation.protocol.name, CONTRACTS[federation.protocol.name].exchange.sends
    if privacy.protects not in ("", sends):
        able = [known for known, one in imported_contracts().items() if one.exchange.sends == privacy.protects]
        others = " or ".join(each for each, one in MECHANISMS.items() if one.protects in ("", sends))
        raise ConfigError(
            f"federation.privacy.mechanism = {privacy.mechanism} with the protocol {name}: what its parties send is "
            f"not one {privacy.unit} a row",
            hint=f"take {'the protocol' if len(able) == 1 else 'one of'} {', '.join(able)}; or mechanism: {others}",
        )
    if privacy.rescale != "none" and federation.batch == 1:
        raise ConfigError(
            f"federation.batch = 1 with federation.privacy.rescale = {privacy.rescale}: one row has no distances",
            hint="give larger batches, or leave rescale out",
        )


def _check_steps(federation: FederationConfig, steps: StepsConfig) -> None:
    """Rejects noise on steps without per-row gradients."""
    name, where = federation.protocol.name, "federation.privacy.steps"
    if not CONTRACTS[name].exchange.gradients:
        hint = f"take one of {able('gradients')}"
        raise ConfigError(f"{where} with the protocol {name}: it steps otherwise", hint=hint)
    if federation.adjust.asked:
        raise ConfigError(
            f"{where} with federation.adjust: a row would pull at other rows, past what its own share is clipped to",
            hint="leave one of the two out",
        )
    if federation.protocol.head_name == "normed":
        raise ConfigError(
            f"{where} with federation.protocol.head: normed, in which rows meet", hint="take another head"
        )
    if steps.rate is not None:
        _check_secret_steps(federation)


def _check_secret_steps(federation: FederationConfig) -> None:
    """Rejects steps over secretly drawn rows in a protocol whose steps are on the announced batch."""
    name, where = federation.protocol.name, "federation.privacy.steps.rate"
    if not CONTRACTS[name].secret_steps:
        raise ConfigError(
            f"{where} with the protocol {name}: its steps are on the announced batch",
            hint=f"take one of {able('secret_steps')}; or leave rate and noise_multiplier out",
        )
    if (head := federation.protocol.head_name) != "linear":
        raise ConfigError(
            f"{where} with federation.protocol.head: {head}: steps over secretly drawn rows are through a linear head",
            hint="leave one of the two out",
        )


def check(config: Config) -> None:
    """Rejects a configuration whose parts contradict each other or the protocol. Raises ConfigError."""
    _check_agreed(config.federation)
    _check_parties(config)
    _check_keys(config)
    if config.server is not None:
        _check_active(config.federation, config.server)
        if config.server.active is not None:
            _check_tower(config.federation, "server.active", config.server.active)
            _check_precision(config.federation, "server.active", config.server.active)
        _check_answers(config.federation, config.server)
        _check_task(config.federation, config.server)
        _check_labels(config.federation, config.server)
        _check_label_noise(config.federation, config.server)
        _check_outside(config.federation, config.server)


def _check_agreed(federation: FederationConfig) -> None:
    _check_length(federation)
    _check_alignment(federation)
    check_privacy(federation)
    _check_adjust(federation)
    _check_participation(federation)
    _check_classes(federation)
    _check_stop(federation)
    _check_quorum(federation)
    _check_sums(federation)
    _check_loss(federation)
    contract = CONTRACTS[federation.protocol.name]
    contract.check(federation, federation.protocol)
    contract.limits_of(federation)


def _check_keys(config: Config) -> None:
    """Rejects keys with another number of parts than agreed, and repeated keys without a policy for them."""
    federation, sources = config.federation, dict[str, object]()
    if config.server is not None:
        sources["server.labels"] = config.server.labels
        sources |= {} if config.server.active is None else {"server.active.data": config.server.active.data}
    sources |= {f"parties.{name}.data": party.data for name, party in config.parties.items()}
    if federation.keys.parts > 1 and federation.align == "none":
        raise ConfigError(
            f"federation.keys.parts = {federation.keys.parts} with federation.align = none: no keys are compared",
            hint="align rows by keys (federation.align: psi or sorted), or leave it out",
        )
    for where, source in sources.items():
        repeated = getattr(source, "repeated", "refuse")
        if repeated != "refuse" and (federation.align == "none" or getattr(source, "key", None) is None):
            raise ConfigError(
                f"{where}.repeated: rows are not aligned by keys of this table, so that each counts",
                hint="leave it out, or set `key` here and federation.align to psi or sorted",
            )
        if repeated in ("first", "last") and getattr(source, "table", None) is not None:
            raise ConfigError(
                f"{where}.repeated = {repeated}: the rows of a key have no order in a database's table",
                hint="write `repeated: {latest: COLUMN}`, or a `query` with its own ORDER BY",
            )
        named = columns_of(getattr(source, "key", None))
        if named and len(named) != federation.keys.parts:
            raise ConfigError(
                f"{where}.key names {', '.join(map(repr, named))}: federation.keys.parts is {federation.keys.parts}",
                hint="every member names as many columns as parts, in the same order of meaning",
            )


def _check_parties(config: Config) -> None:
    """Rejects chaos for unknown messages, and unsuitable workers."""
    federation, kinds = config.federation, CONTRACTS[config.federation.protocol.name].kinds
    for name, party in config.parties.items():
        for kind in party.chaos.kinds() - set(kinds):
            raise ConfigError(
                f"parties.{name}.chaos: {federation.protocol.name} has no message {kind!r}{nearest(kind, kinds)}",
                hint=f"there are {', '.join(kinds)}",
            )
        check_workers(federation, name, party)
        _check_precision(federation, f"parties.{name}", party)
        _check_store(federation, f"parties.{name}.data", party.data)
        _check_tower(federation, f"parties.{name}", party)
        if party.monotone:
            _check_monotone(federation, f"parties.{name}.monotone")
        if not federation.protocol.cards and (key := "special" if party.special else "cuts" if party.cuts else ""):
            raise ConfigError(
                f"parties.{name}.{key} with the protocol {federation.protocol.name}: it is no scorecard",
                hint="leave it out, or take scorecard",
            )
        if both := sorted(party.cuts.keys() & party.monotone.keys()):
            raise ConfigError(
                f"parties.{name}: column {both[0]!r} has cuts and a direction: bins between given cuts follow none",
                hint="leave one of the two out",
            )


def _check_tower(federation: FederationConfig, owner: str, member: PartyConfig | ActiveConfig) -> None:
    """Rejects columns of text or images without a tower, and a tower without its columns."""
    data, model, protocol = member.data, member.model, federation.protocol
    contents = data.contents if isinstance(data, TableColumnsConfig) else {}
    if not isinstance(model, PretrainedConfig):
        for name, type in contents.items():
            tower = "timm/NAME" if type == "image" else "transformers/TYPE"
            raise ConfigError(
                f"{owner}.data.types: column {name!r} is {type}, which {owner}.model does not read",
                hint=f"set {owner}.model to {{name: {tower}, weights: PATH}}, or leave the column out with `drop`",
            )
        return
    tower = f"{owner}.model = {model.name}/{model.architecture}"
    if others := [name for name, type in contents.items() if type != model.reads]:
        raise ConfigError(
            f"{tower} reads columns of type {model.reads}, and {others[0]!r} is {contents[others[0]]}",
            hint="a member has one tower: leave the column out with `drop`",
        )
    if not contents:
        raise ConfigError(
            f"{tower}: no column is of type {model.reads}", hint=f"name one: `types: {{NAME: {model.reads}}}` in data"
        )
    if not model.tune:
        return
    assert isinstance(data, TableColumnsConfig)  # it has contents
    width = CONTRACTS[protocol.name].width_of(federation)
    wrong = {
        f"with the protocol {protocol.name}, which trains no model of it": width is None or protocol.typed,
        f"with {len(contents)} columns: it takes one": len(contents) > 1,
        "with data.scale: the tower's own normalisation applies": "scale" in data.model_fields_set,
        "with data.repeated = mean: pixels and tokens have none": data.repeated == "mean",
        "with data.noise: pixels and tokens take none": data.noise is not None,
        "with workers: ranks send each other all that is trained": getattr(member, "workers", 1) > 1,
    }
    if said := next((said for said, given in wrong.items() if given), None):
        raise ConfigError(f"{owner}.model.tune = true {said}", hint="leave one of the two out")


def _check_precision(federation: FederationConfig, owner: str, member: PartyConfig | ActiveConfig) -> None:
    """Rejects low precision in protocols that depend on small differences of outputs."""
    if precision_of(member.model) == "float32":
        return
    key, protocol = f"{owner}.model.precision = bfloat16", federation.protocol
    if not protocol.ranks:
        raise ConfigError(
            f"{key} with the protocol {protocol.name}: more is done there than a batch's forward and backward pass",
            hint=f"leave it out; or take one of {able('ranks')}",
        )
    if getattr(member, "workers", 1) > 1:
        raise ConfigError(
            f"{key} with {owner}.workers: ranks are compared to five digits, and bfloat16 has two to three",
            hint="leave one of the two out",
        )


def check_workers(federation: FederationConfig, name: str, party: PartyConfig) -> None:
    """Rejects workers without work, or whose rows cannot be divided. Raises ConfigError."""
    key, protocol = f"parties.{name}.workers = {party.workers}", federation.protocol
    alone = "leave it out: the party is one process"
    if party.workers == 1:
        return
    if not protocol.ranks:
        raise ConfigError(
            f"{key} with the protocol {protocol.name}: a party's work there is not a batch's forward and backward pass",
            hint=f"{alone}; or take one of {able('ranks')}",
        )
    if federation.privacy is not None and federation.privacy.protects == "embeddings":
        raise ConfigError(
            f"{key} with federation.privacy.mechanism = {federation.privacy.mechanism}: rows are brought into a region "
            "and steps are noised by one process",
            hint=alone,
        )
    if party.workers > federation.batch:
        raise ConfigError(
            f"{key} with federation.batch = {federation.batch}: some would have no row of any batch",
            hint=f"take {federation.batch} at most, or a larger batch",
        )
    if party.device.startswith("cuda"):
        raise ConfigError(f"{key} with device = {party.device}: workers compute on CPUs", hint=alone)


def _check_store(federation: FederationConfig, key: str, data: DataConfig) -> None:
    """Rejects a table on disk if the protocol computes with all of its rows at once."""
    protocol = federation.protocol
    if (protocol.typed or protocol.whole) and getattr(data, "store", "memory") == "disk":
        raise ConfigError(
            f"{key}.store = disk with the protocol {protocol.name}: a party computes there with all rows at once",
            hint="leave it out; or take a protocol whose rounds are over batches, such as split",
        )


def _check_monotone(federation: FederationConfig, key: str) -> None:
    """Rejects directions of columns that scores could not follow."""
    if not federation.protocol.monotone:
        raise ConfigError(
            f"{key} with the protocol {federation.protocol.name}: its scores follow no direction of a column",
            hint="leave it out",
        )
    if federation.task == "classification" and federation.outputs != 2:
        raise ConfigError(
            f"{key} with {federation.outputs} classes: no one score rises or falls",
            hint="leave it out; or make labels of two classes",
        )


def _check_active(federation: FederationConfig, server: ServerConfig) -> None:
    """Rejects server columns in a protocol without them, and their absence in a protocol that needs them."""
    name = federation.protocol.name
    if federation.protocol.active == (server.active is not None):
        if server.active is not None:
            _check_store(federation, "server.active.data", server.active.data)
        return
    if federation.protocol.active:
        raise ConfigError(
            f"server.active: missing, and in {name} the server has columns of its own",
            hint="name them: server.active.data, with a model and an optimiser, as a party has them",
        )
    raise ConfigError(
        f"server.active: in {name} the server has no columns of its own",
        hint=f"let a party hold them, or take one of {able('active')}",
    )


def _check_answers(federation: FederationConfig, server: ServerConfig) -> None:
    """Rejects response noise in a protocol that would send labels without noise."""
    name = federation.protocol.name
    if server.privacy.answers is None or CONTRACTS[name].response_noise:
        return
    raise ConfigError(
        f"server.privacy.answers: in {name} what goes back to the parties is not noised",
        hint=f"take one of {able('response_noise')}; "
        "or protect the labels once, before training: server.privacy.labels: {epsilon: 2}",
    )


def _check_task(federation: FederationConfig, server: ServerConfig) -> None:
    """Rejects settings of the server's section that the task does not support."""
    if server.class_weights != "none":
        _check_class_weights(federation, server)
    if federation.protocol.cards:
        _check_counted(federation, server)
    _check_decision(federation, server)
    if federation.task == "classification":
        return
    if server.privacy.labels is not None:
        raise ConfigError(
            "server.privacy.labels with federation.task = regression: the noise is for one-hot vectors of classes",
            hint="leave it out; or predict ranges of the number as classes",
        )
    if server.privacy.answers is not None:
        raise ConfigError(
            "server.privacy.answers with federation.task = regression: targets are standardised on all training rows, "
            "so that one row's number moves every row's response, past what its own share is clipped to",
            hint="leave it out; or predict ranges of the number as classes",
        )


def _check_counted(federation: FederationConfig, server: ServerConfig) -> None:
    """Rejects weights and noise where parties count labels and points express odds."""
    given = {"class_weights": server.class_weights != "none", "privacy.labels": server.privacy.labels is not None}
    if key := next((key for key, there in given.items() if there), None):
        raise ConfigError(
            f"server.{key} with the protocol {federation.protocol.name}: bins count labels as they are, and points "
            "stand for odds in the table",
            hint="leave it out; server.decide weighs what errors cost",
        )


def _check_labels(federation: FederationConfig, server: ServerConfig) -> None:
    """Rejects weights of rows that count alike, and dropping unlabelled rows that are matched by order."""
    if not federation.protocol.weighted and getattr(server.labels, "weight", None) is not None:
        raise ConfigError(
            f"server.labels.weight: in {federation.protocol.name} all rows count alike",
            hint="leave it out, or take secureboost; weights of classes are server.class_weights",
        )
    if federation.align == "none" and getattr(server.labels, "missing", "") == "drop":
        raise ConfigError(
            "server.labels.missing = drop with federation.align = none: a row that the server alone leaves out shifts "
            "all that follow against the parties' rows",
            hint="align rows by keys (federation.align: psi or sorted), or leave the same rows out of every table",
        )


def _check_label_noise(federation: FederationConfig, server: ServerConfig) -> None:
    """Rejects sets of classes that cannot be drawn, and settings of a z that the protocol does not have."""
    config, rho = server.privacy.labels, federation.protocol.penalty
    if config is None:
        return
    name = federation.protocol.name
    if config.prior and CONTRACTS[name].exchange.labels_first:
        raise ConfigError(
            f"server.privacy.labels.prior = true with {name}, whose parties need all labels before there is a model",
            hint="leave prior out",
        )
    if config.auxiliary is not None and rho is None:
        raise ConfigError(
            f"server.privacy.labels.auxiliary = {config.auxiliary}: {name} has no z",
            hint="leave it out: where gradients are sent, the loss is that of the released label already",
        )
    if config.auxiliary == "likelihood" and rho is not None and rho <= CONVEX:
        raise ConfigError(
            f"server.privacy.labels.auxiliary = likelihood with federation.protocol.rho = {rho:g}: "
            f"the loss of z is not convex for rho up to {CONVEX:g}",
            hint="take a larger rho, such as 1, or auxiliary: posterior",
        )
    size = config.size
    if size is not None and size >= federation.outputs:
        raise ConfigError(
            f"server.privacy.labels.size = {size}: of {federation.outputs} classes a set must leave out one at least, "
            "or it says nothing",
            hint="leave it out, and the most informative size is taken",
        )


def _check_loss(federation: FederationConfig) -> None:
    """Rejects another package's loss if it is not installed, or the protocol needs more than its gradient."""
    if federation.loss == POISSON:
        _check_counts(federation)
        return
    if not federation.loss:
        return
    check_registered(OUTSIDE_LOSSES, "federation.loss", federation.loss)
    if not CONTRACTS[federation.protocol.name].exchange.any_loss:
        raise ConfigError(
            f"federation.loss = {federation.loss!r}: {federation.protocol.name} works with the loss of the task alone",
            hint=f"leave it out, or take one of {able('any_loss')}",
        )


def _check_counts(federation: FederationConfig) -> None:
    """Rejects Poisson's loss without counts, or with a protocol that supports only the task's loss."""
    said = f"federation.loss = {POISSON}"
    if federation.task != "regression":
        raise ConfigError(f"{said}: classes are not counted", hint="set federation.task to regression")
    if not federation.protocol.weighted:
        raise ConfigError(
            f"{said}: {federation.protocol.name} works with the loss of the task alone",
            hint="leave it out, or take secureboost",
        )


def _check_outside(federation: FederationConfig, server: ServerConfig) -> None:
    """Rejects outside losses and metrics that the server cannot use."""
    for name in server.extra_metrics:
        check_metric(name)
    if not federation.loss or federation.loss == POISSON:
        return
    load_function(OUTSIDE_LOSSES, federation.loss)
    given = {
        "class_weights": server.class_weights != "none",
        "privacy.labels": server.privacy.labels,
        "privacy.answers": server.privacy.answers,
    }
    if other := next((key for key, value in given.items() if value), None):
        raise ConfigError(
            f"server.{other} with federation.loss = {federation.loss!r}: it is made for the loss of the task",
            hint="leave one of the two out",
        )


def _check_class_weights(federation: FederationConfig, server: ServerConfig) -> None:
    """Rejects class weights without classes, where the parties compute the loss, or that reveal labels."""
    weights, name = server.class_weights, federation.protocol.name
    if federation.task == "regression":
        raise ConfigError("server.class_weights with federation.task = regression: there are no classes")
    if CONTRACTS[name].exchange.shares_labels:
        raise ConfigError(
            f"server.class_weights: in {name} the parties compute the loss themselves, without weights",
            hint="leave it out, or take a protocol whose server computes the loss",
        )
    if server.privacy.labels is not None:
        raise ConfigError(
            "server.class_weights with server.privacy.labels: noisy labels are of no one class",
            hint="take one of the two",
        )
    if weights == "balanced" and server.privacy.answers is not None:
        raise ConfigError(
            "server.class_weights = balanced with server.privacy.answers: the weights are counts of all labels, which "
            "the noise does not cover",
            hint="write weights down that you know without looking at the labels, one a class",
        )
    if not isinstance(weights, str) and len(weights) != federation.outputs:
        raise ConfigError(
            f"server.class_weights has {len(weights)} weights for {federation.outputs} classes",
            hint="one a class, in the classes' order",
        )


def _check_decision(federation: FederationConfig, server: ServerConfig) -> None:
    """Rejects thresholds and recalibration unless there are two classes, validation rows, and public labels."""
    given = {"decide": server.decide is not None, "calibrate": server.calibrate != "none"}
    for key in (key for key, there in given.items() if there):
        if federation.task == "regression":
            raise ConfigError(
                f"server.{key} with federation.task = regression: there are no classes", hint="leave it out"
            )
        if federation.outputs != 2:
            raise ConfigError(
                f"server.{key} with {federation.outputs} classes: it is of the positive one of two",
                hint="leave it out; or make labels of two classes, such as one class and all others",
            )
        fixed = key == "decide" and server.decide is not None and server.decide.at is not None
        if not federation.rows.validation and not fixed:
            raise ConfigError(
                f"server.{key}: there are no validation rows to choose it on, and test rows are never chosen by",
                hint="set federation.rows.validation, say to 0.1",
            )
    private = next((key for key in ("labels", "answers") if getattr(server.privacy, key) is not None), None)
    if private and server.calibrate == "isotonic":
        raise ConfigError(
            f"server.calibrate = isotonic with server.privacy.{private}: its probabilities are means of few validation "
            "rows' labels, which no noise covers, and predictions would show them",
            hint="take platt, two numbers from all of them; or leave it out",
        )


def _check_sums(federation: FederationConfig) -> None:
    if federation.protocol.blinded:
        check_blinded(federation)
        return
    if (recovery := federation.blinding.recovery) != "none":
        raise ConfigError(
            f"federation.blinding.recovery = {recovery} with the protocol {federation.protocol.name}: its sums are not "
            "blinded",
            hint="leave it out, or set federation.protocol.aggregate to blinded where the protocol has it",
        )
    if federation.privacy is not None and federation.privacy.once is not None:
        sums = [
            name
            for name, contract in imported_contracts().items()
            if "aggregate" in contract.config.model_fields and not contract.config.full_batch  # whose sums are exact
        ]
        raise ConfigError(
            f"federation.privacy.once with the protocol {federation.protocol.name}: the server would see each party's "
            "values with only a share of the noise",
            hint=f"set federation.protocol.aggregate to blinded in one of {', '.join(sorted(sums))}; or leave once out",
        )


def _check_length(federation: FederationConfig) -> None:
    if bool(federation.epochs) == bool(federation.rounds):
        both = f"epochs = {federation.epochs} and federation.rounds = {federation.rounds}"
        raise ConfigError(f"federation.{both}: give one of the two, at least 1, and leave the other out")


def _check_alignment(federation: FederationConfig) -> None:
    if federation.align_checks != "none" and federation.align != "psi":
        raise ConfigError(
            f"federation.align_checks = {federation.align_checks} with federation.align = {federation.align}: there "
            "are no lists to check",
            hint="set federation.align: psi, or leave align_checks out",
        )
    if federation.align_checks == "proofs" and len(federation.parties) == 1:
        raise ConfigError(
            "federation.align_checks = proofs with one party: the server, which would verify it, would learn its order",
            hint="use align_checks: planted",
        )
    if federation.align_checks == "proofs":
        point_class()
    if federation.align != "none" and federation.rows.test == "official":
        raise ConfigError(
            f"federation.rows.test = official with federation.align = {federation.align}: rows get a new order, in "
            "which the source's own test part is nowhere",
            hint="give a number of rows or a fraction",
        )


def _check_adjust(federation: FederationConfig) -> None:
    adjust, name, batch, classes = federation.adjust, federation.protocol.name, federation.batch, federation.outputs
    if not adjust.asked:
        return
    if adjust.contrastive and federation.task == "regression":
        raise ConfigError(
            "federation.adjust.contrastive with federation.task = regression: it has a cluster for every class",
            hint="leave it out",
        )
    if not CONTRACTS[name].exchange.gradients:
        raise ConfigError(
            f"federation.adjust with the protocol {name}: its parties follow no gradient at their embeddings",
            hint=f"take one of {able('gradients')}, or leave adjust out",
        )
    least = classes if adjust.contrastive else 2
    if batch < least:
        what = f"{classes} classes are more than its rows" if batch > 1 else "one row has no distances and no clusters"
        raise ConfigError(
            f"federation.batch = {batch} with federation.adjust: {what}", hint=f"give batches of at least {least} rows"
        )


def _check_participation(federation: FederationConfig) -> None:
    share, name = federation.participation, federation.protocol.name
    if share < 1 and not CONTRACTS[name].subsampling:
        raise ConfigError(
            f"federation.participation = {share:g}: {name} needs every party in a round",
            hint=f"leave it out, or take one of {able('subsampling')}",
        )


def _check_classes(federation: FederationConfig) -> None:
    classes = federation.classes
    if federation.task == "regression":
        if classes:
            raise ConfigError(
                "federation.classes with federation.task = regression: numbers have no classes",
                hint="leave it out; federation.targets says how many numbers a row has",
            )
        return
    if federation.targets:
        raise ConfigError(
            f"federation.targets = {federation.targets}: a classification has classes",
            hint="set federation.task to regression, or leave it out",
        )
    if "classes" not in federation.model_fields_set:
        raise ConfigError("federation.classes: missing", hint="how many classes, or their names in order")
    if federation.outputs < 2:
        said = classes if isinstance(classes, int) else list(classes)
        raise ConfigError(f"federation.classes = {said}: expected at least 2")


def _check_stop(federation: FederationConfig) -> None:
    if federation.stop is not None and not federation.rows.validation:
        raise ConfigError(
            "federation.stop: there are no validation rows to go by",
            hint="set federation.rows.validation, say to 0.1",
        )
    if federation.stop is not None and (metric := federation.stop.metric) is not None:
        _check_stop_metric(federation, metric)


def _check_stop_metric(federation: FederationConfig, metric: str) -> None:
    numbers = federation.task == "regression"
    if numbers != (metric in OF_NUMBERS) and metric not in ("loss", "measure"):
        of_classes = [name for name in get_args(StopMetric) if name not in OF_NUMBERS[:-1]]
        there = ("measure", *OF_NUMBERS) if numbers else of_classes
        raise ConfigError(
            f"federation.stop.metric = {metric} with federation.task = {federation.task}",
            hint=f"take one of {', '.join(there)}",
        )
    if metric in OF_TWO and federation.outputs != 2:
        raise ConfigError(
            f"federation.stop.metric = {metric} with {federation.outputs} classes: it ranks the second of two",
            hint="take auc or balanced_accuracy",
        )


def _check_quorum(federation: FederationConfig) -> None:
    need, parties = federation.quorum.need, len(federation.parties)
    if isinstance(need, int) and not 0 <= need <= parties:
        allowed = f"0 to {parties}, as many as there are parties, or all"
        raise ConfigError(f"federation.quorum.need = {need}: expected {allowed}")
    if federation.absence == "continue" and need in ("all", parties):
        raise ConfigError(
            f"federation.absence = continue: a round that needs all {parties} responses cannot go on",
            hint="set federation.quorum to {deadline: SECONDS} or {fastest: K}, or absence to wait or rollback",
        )
