"""The report on runs as one page: ``source`` reads files, ``figures_*`` draw them, ``page`` writes."""
