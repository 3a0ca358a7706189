from penstock.plan.nodes import Node


def push_filters(root: Node) -> Node:
    return root
