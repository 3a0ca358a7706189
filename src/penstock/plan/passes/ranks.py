from penstock.plan.nodes import Node


def rank_filters(root: Node) -> Node:
    return root
